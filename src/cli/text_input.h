// The text that `run` continues, `tokenize` reads and `chat` takes line by line: a file, or standard input.
#pragma once

#include <optional>
#include <string>

namespace trefoil::cli {

// The whole of `file`; "-" is standard input. Error: kNotFound when it is not there, kUnsupported for a folder and for more
// than 256 MiB (a device never ends), kIo when reading fails.
std::string read_text_input(const std::string& file);

// The next line of standard input without its end; nothing when there is none. Error as above.
std::optional<std::string> read_line_input();

}  // namespace trefoil::cli
