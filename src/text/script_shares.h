// In what scripts a text is written: a simple estimate of its languages. Latin covers English and Vietnamese alike, Han
// both Chinese and much of Japanese; it tells whether a "multilingual" text is one, not more.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trefoil {

struct ScriptShare {
  std::string script;  // "Latin", "Han", ...
  double share = 0;    // of the characters that belong to a script, 0 to 1
};

class ScriptCounter {
 public:
  ScriptCounter();
  // Counts the characters of `text`, which is UTF-8.
  void add(std::string_view text);
  int64_t characters() const;  // that belong to a script
  // Scripts that occur, the commonest first, equal ones by name.
  std::vector<ScriptShare> shares() const;

 private:
  std::vector<int64_t> counts_;  // by script number
};

}  // namespace trefoil
