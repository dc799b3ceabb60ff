#include "tokenizer/special_tokens.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace trefoil {
namespace {

namespace dom = simdjson::dom;

// The one value of `key` in `object`; nothing when it is absent.
std::optional<dom::element> find_once(dom::object object, std::string_view key, const std::string& name) {
  std::optional<dom::element> found;
  for (const dom::key_value_pair field : object) {
    if (field.key != key) continue;
    if (found) fail(ErrorCode::kCorrupt, "{}: the key \"{}\" occurs twice", name, key);
    found = field.value;
  }
  return found;
}

int32_t parse_id(std::string_view key, const std::string& name, int32_t first_id) {
  int32_t id = -1;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (error != std::errc() || end != key.data() + key.size() || fmt::to_string(id) != key) {
    fail(ErrorCode::kCorrupt, "{}: added_tokens_decoder: \"{}\" is not a token id", name, key.substr(0, 32));
  }
  if (id < first_id || id - first_id >= kNumSpecialTokens) {
    fail(ErrorCode::kCorrupt, "{}: added_tokens_decoder: id {} is outside the special tokens {} to {}", name, id,
         first_id, first_id + kNumSpecialTokens - 1);
  }
  return id;
}

std::string parse_content(dom::element entry, const std::string& name, int32_t id) {
  dom::object fields;
  if (entry.get(fields) != simdjson::SUCCESS) {
    fail(ErrorCode::kCorrupt, "{}: added_tokens_decoder: the entry of id {} is not an object", name, id);
  }
  const std::optional<dom::element> content = find_once(fields, "content", name);
  std::string_view text;
  if (!content || content->get(text) != simdjson::SUCCESS || text.empty()) {
    fail(ErrorCode::kCorrupt, "{}: added_tokens_decoder: id {} has no \"content\" text", name, id);
  }
  return std::string(text);
}

}  // namespace

SpecialTokenSet SpecialTokenSet::parse(std::string_view config, const std::string& name, int32_t first_id) {
  SpecialTokenSet set;
  set.first_id_ = first_id;
  set.names_.resize(kNumSpecialTokens);

  dom::parser parser;
  dom::element root;
  dom::object top;
  const simdjson::padded_string padded(config);
  if (const auto error = parser.parse(padded).get(root); error != simdjson::SUCCESS) {
    fail(ErrorCode::kCorrupt, "{}: not JSON: {}", name, simdjson::error_message(error));
  }
  if (root.get(top) != simdjson::SUCCESS) fail(ErrorCode::kCorrupt, "{}: not a JSON object", name);
  if (const std::optional<dom::element> decoder = find_once(top, "added_tokens_decoder", name)) {
    dom::object entries;
    if (decoder->get(entries) != simdjson::SUCCESS) {
      fail(ErrorCode::kCorrupt, "{}: added_tokens_decoder is not an object", name);
    }
    for (const dom::key_value_pair entry : entries) {
      const int32_t id = parse_id(entry.key, name, first_id);
      std::string& token_name = set.names_[static_cast<size_t>(id - first_id)];
      if (!token_name.empty()) fail(ErrorCode::kCorrupt, "{}: added_tokens_decoder: id {} occurs twice", name, id);
      token_name = parse_content(entry.value, name, id);
    }
  }

  for (int32_t id = first_id; id < first_id + kNumSpecialTokens; ++id) {
    std::string& token_name = set.names_[static_cast<size_t>(id - first_id)];
    if (token_name.empty()) token_name = fmt::format("<|reserved_token_{}|>", id);
    const auto [other, is_new] = set.ids_.emplace(token_name, id);
    if (!is_new) {
      fail(ErrorCode::kCorrupt, "{}: ids {} and {} are both named '{}'", name, other->second, id, token_name);
    }
    set.by_first_byte_[static_cast<uint8_t>(token_name[0])].push_back(id);
  }
  for (size_t byte = 0; byte < set.by_first_byte_.size(); ++byte) {
    auto& ids = set.by_first_byte_[byte];
    if (!ids.empty()) set.first_bytes_.push_back(static_cast<char>(byte));
    std::stable_sort(ids.begin(), ids.end(),
                     [&](int32_t a, int32_t b) { return set.token_name(a).size() > set.token_name(b).size(); });
  }
  return set;
}

std::optional<int32_t> SpecialTokenSet::find(std::string_view token_name) const {
  const auto found = ids_.find(std::string(token_name));
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<SpecialTokenSet::Occurrence> SpecialTokenSet::find_in(std::string_view text, size_t from) const {
  for (size_t at = text.find_first_of(first_bytes_, from); at != std::string_view::npos;
       at = text.find_first_of(first_bytes_, at + 1)) {
    for (const int32_t id : by_first_byte_[static_cast<uint8_t>(text[at])]) {
      const std::string& token = token_name(id);
      if (text.compare(at, token.size(), token) == 0) return Occurrence{at, token.size(), id};
    }
  }
  return std::nullopt;
}

}  // namespace trefoil
