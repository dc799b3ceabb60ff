// Edits of a JSON text that leave every other byte as it was: numbers keep their digits, members their order and
// spacing. The text must have passed parse_strict_json.
#pragma once

#include <string>
#include <string_view>

namespace trefoil {

// Without the member `key` of the object reached through `path` (keys from the document down; empty: the document
// itself). Unchanged when there is no such object or member.
std::string remove_member(std::string_view json, std::initializer_list<std::string_view> path, std::string_view key);

// With `"key": value` as the last member of the document's object, on a line of its own, indented by two spaces.
std::string append_member(std::string_view json, std::string_view key, std::string_view value);

}  // namespace trefoil
