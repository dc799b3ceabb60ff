#include "text/script_shares.h"

#include <algorithm>
#include <numeric>

#include "tokenizer/unicode_script.h"
#include "tokenizer/utf8.h"

namespace trefoil {

ScriptCounter::ScriptCounter() : counts_(script_names().size()) {}

void ScriptCounter::add(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const int script = script_of(next_code_point(text, &pos));
    if (script >= 0) ++counts_[static_cast<size_t>(script)];
  }
}

int64_t ScriptCounter::characters() const {
  return std::accumulate(counts_.begin(), counts_.end(), int64_t{0});
}

std::vector<ScriptShare> ScriptCounter::shares() const {
  const auto total = static_cast<double>(characters());
  std::vector<ScriptShare> shares;
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] > 0) shares.push_back({std::string(script_names()[i]), static_cast<double>(counts_[i]) / total});
  }
  std::stable_sort(shares.begin(), shares.end(), [](const auto& a, const auto& b) { return a.share > b.share; });
  return shares;
}

}  // namespace trefoil
