#include "checkpoint/json_splice.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "base/check.h"

namespace trefoil {
namespace {

// Byte positions of one member in the text.
struct Member {
  std::string key;
  size_t key_begin = 0;    // of the opening quote
  size_t value_begin = 0;  // of the value's first byte
  size_t value_end = 0;    // one past its last byte
};

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

size_t skip_space(std::string_view json, size_t at) {
  while (at < json.size() && is_space(json[at])) ++at;
  return at;
}

// `at` is on an opening quote; one past the closing one.
size_t end_of_string(std::string_view json, size_t at) {
  for (++at; json.at(at) != '"'; ++at) {
    if (json[at] == '\\') ++at;
  }
  return at + 1;
}

// One past the last byte of the value that begins at `at`.
size_t end_of_value(std::string_view json, size_t at) {
  int depth = 0;
  while (at < json.size()) {
    const char c = json[at];
    if (c == '"') {
      at = end_of_string(json, at);
      if (depth == 0) return at;
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') {
      if (depth == 0) return at;  // the enclosing object closes after a number or word
      if (--depth == 0) return at + 1;
    }
    if (depth == 0 && (c == ',' || is_space(c))) return at;
    ++at;
  }
  return at;
}

// The members of the object whose '{' is at `at`.
std::vector<Member> members_of(std::string_view json, size_t at) {
  std::vector<Member> members;
  at = skip_space(json, at + 1);
  while (json.at(at) != '}') {
    Member member;
    member.key_begin = at;
    at = end_of_string(json, at);
    // Through the parser, because a key may be written with escapes.
    member.key = nlohmann::json::parse(json.substr(member.key_begin, at - member.key_begin)).get<std::string>();
    at = skip_space(json, at);  // on ':'
    member.value_begin = skip_space(json, at + 1);
    member.value_end = end_of_value(json, member.value_begin);
    members.push_back(member);
    at = skip_space(json, member.value_end);
    if (json.at(at) == ',') at = skip_space(json, at + 1);
  }
  return members;
}

size_t document_begin(std::string_view json) {
  const size_t at = json.find('{');  // only white space or a byte order mark can stand before it
  TREFOIL_CHECK(at != std::string_view::npos);
  return at;
}

std::optional<size_t> object_at(std::string_view json, std::initializer_list<std::string_view> path) {
  size_t at = document_begin(json);
  for (const std::string_view key : path) {
    std::optional<size_t> next;
    for (const Member& member : members_of(json, at)) {
      if (member.key == key && json[member.value_begin] == '{') next = member.value_begin;
    }
    if (!next.has_value()) return std::nullopt;
    at = *next;
  }
  return at;
}

}  // namespace

std::string remove_member(std::string_view json, std::initializer_list<std::string_view> path, std::string_view key) {
  const std::optional<size_t> object = object_at(json, path);
  if (!object.has_value()) return std::string(json);
  const std::vector<Member> members = members_of(json, *object);
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].key != key) continue;
    // A member takes the separator before it along, the first one the separator after it, the only one both spaces.
    const size_t begin = i > 0 ? members[i - 1].value_end : members.size() > 1 ? members[i].key_begin : *object + 1;
    const size_t end = i > 0                ? members[i].value_end
                       : members.size() > 1 ? members[i + 1].key_begin
                                            : skip_space(json, members[i].value_end);
    return std::string(json.substr(0, begin)) + std::string(json.substr(end));
  }
  return std::string(json);
}

std::string append_member(std::string_view json, std::string_view key, std::string_view value) {
  const size_t object = document_begin(json);
  const std::vector<Member> members = members_of(json, object);
  const size_t keep = members.empty() ? object + 1 : members.back().value_end;
  const size_t close = skip_space(json, keep);  // the '}'
  std::string result(json.substr(0, keep));
  if (!members.empty()) result += ',';
  result += "\n  " + nlohmann::json(key).dump() + ": ";
  result += value;
  result += "\n";
  result += json.substr(close);
  return result;
}

}  // namespace trefoil
