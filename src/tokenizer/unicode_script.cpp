#include "tokenizer/unicode_script.h"

#include <algorithm>

namespace trefoil {
namespace {

struct ScriptRange {
  char32_t first;
  char32_t last;
  uint8_t script;
};

#include "tokenizer/unicode_scripts.inc"

}  // namespace

int script_of(char32_t code_point) {
  const auto* range = std::upper_bound(std::begin(kScriptRanges), std::end(kScriptRanges), code_point,
                                       [](char32_t c, const ScriptRange& r) { return c < r.first; });
  if (range == std::begin(kScriptRanges)) return -1;
  --range;
  return code_point <= range->last ? range->script : -1;
}

std::span<const std::string_view> script_names() {
  return kScriptNames;
}

}  // namespace trefoil
