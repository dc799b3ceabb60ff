// The text that `run` continues and `tokenize` reads: a file, or standard input.
#pragma once

#include <string>

namespace trefoil::cli {

// The whole of `file`; "-" is standard input. Error: kNotFound when it is not there, kUnsupported for a folder and for more
// than 256 MiB (a device never ends), kIo when reading fails.
std::string read_text_input(const std::string& file);

}  // namespace trefoil::cli
