// The 256 special tokens whose ids follow the ranks: their names, and where they occur in a text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trefoil {

inline constexpr int32_t kNumSpecialTokens = 256;

class SpecialTokenSet {
 public:
  // `config` is tokenizer_config.json; added_tokens_decoder[id].content names token `id`, and an id that it does not
  // name is `<|reserved_token_{id}|>`. Error(kCorrupt) with `name` for anything that is not JSON, an id outside
  // [first_id, first_id + 256), an empty name, and a name or id that occurs twice.
  static SpecialTokenSet parse(std::string_view config, const std::string& name, int32_t first_id);

  const std::string& token_name(int32_t id) const { return names_[static_cast<size_t>(id - first_id_)]; }
  std::optional<int32_t> find(std::string_view token_name) const;

  struct Occurrence {
    size_t begin;
    size_t size;
    int32_t id;
  };
  // The first place at or behind `from` where a special token's name begins, the longest name there.
  std::optional<Occurrence> find_in(std::string_view text, size_t from) const;

 private:
  int32_t first_id_ = 0;
  std::vector<std::string> names_;                       // kNumSpecialTokens, names_[i] is of id first_id_ + i
  std::unordered_map<std::string, int32_t> ids_;         // the reverse
  std::array<std::vector<int32_t>, 256> by_first_byte_;  // ids by the name's first byte, longest name first
  std::string first_bytes_;                              // the bytes with which a name begins
};

}  // namespace trefoil
