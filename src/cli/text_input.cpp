#include "cli/text_input.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "cli/model_argument.h"
#include "trefoil/error.h"

namespace trefoil::cli {
namespace {

constexpr size_t kLimit = size_t{1} << 28;

std::string read_stream(std::istream& in, const std::string& name) {
  std::string text;
  std::array<char, 1 << 16> block;
  while (in.read(block.data(), block.size()) || in.gcount() > 0) {
    text.append(block.data(), static_cast<size_t>(in.gcount()));
    if (text.size() > kLimit)
      throw Error(ErrorCode::kUnsupported, fmt::format("{}: more than {} bytes of text", name, kLimit));
  }
  if (in.bad()) throw Error(ErrorCode::kIo, name + ": cannot be read");
  return text;
}

}  // namespace

std::string read_text_input(const std::string& file) {
  if (file == "-") return read_stream(std::cin, "standard input");
  const std::filesystem::path path = expand_home(file);
  if (std::filesystem::is_directory(path))
    throw Error(ErrorCode::kUnsupported, file + ": a folder, expected a text file");
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kNotFound, file + ": cannot be opened");
  return read_stream(in, file);
}

std::optional<std::string> read_line_input() {
  std::string line;
  for (int c = std::cin.get(); c != std::istream::traits_type::eof(); c = std::cin.get()) {
    if (c == '\n') return line;
    line += static_cast<char>(c);
    if (line.size() > kLimit)
      throw Error(ErrorCode::kUnsupported, fmt::format("standard input: a line of more than {} bytes", kLimit));
  }
  if (std::cin.bad()) throw Error(ErrorCode::kIo, "standard input: cannot be read");
  if (line.empty()) return std::nullopt;
  return line;
}

}  // namespace trefoil::cli
