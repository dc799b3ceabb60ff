// Reading small JSON documents (config.json and the like) that nobody vouches for: strict parsing and typed access,
// where every refusal is an Error(kCorrupt) that names the file, the key's path, what was expected and what was found.
// Not for safetensors headers or the index, which are large and have parsers of their own.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trefoil {

using Json = nlohmann::ordered_json;

// Members keep their order. Refuses, beyond what is not JSON: a key that occurs twice in one object, nesting deeper
// than 64 levels (readers recurse), objects of more than 10,000 members (look-up is linear).
Json parse_strict_json(std::string_view text, const std::string& file);

// "true", "96", "\"silu\"", "an object": a found value as it appears in a message, shortened when long.
std::string describe(const Json& value);

// One object of a document and the path that leads to it. Keeps a reference to the value: the document must outlive it.
class JsonObject {
 public:
  // Error(kCorrupt) unless `value` is an object. `path` is empty for the document itself.
  JsonObject(const Json& value, std::string path, std::string file);

  const std::string& file() const { return file_; }
  // "text_config.hidden_size"
  std::string path_of(std::string_view key) const;

  // Null when absent. A JSON null counts as absent.
  const Json* find(std::string_view key) const;
  // Error(kCorrupt) when absent.
  const Json& demand(std::string_view key) const;

  JsonObject object(std::string_view key) const;
  bool boolean(std::string_view key) const;
  std::string text(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t least, int64_t most) const;
  double number(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;
  std::vector<std::string> texts(std::string_view key) const;

  // fail(kCorrupt) with "file: path: expected ..., found ...".
  [[noreturn]] void refuse(std::string_view key, std::string_view expected, const Json& found) const;

 private:
  const Json* value_;
  std::string path_;
  std::string file_;
};

}  // namespace trefoil
