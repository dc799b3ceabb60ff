// A regular expression over module or tensor names, with Python's re.match meaning: anchored at the start, free at the
// end. PCRE2 underneath; syntax both know means the same for names of one line. A pattern comes from a file nobody
// vouches for, so matching has a step limit: a pattern that would backtrack forever is an Error(kUnsupported), not a
// hang. Compiled once, immutable, safe to use from several threads.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace trefoil {

class NamePattern {
 public:
  enum class Anchor {
    kStart,     // re.match
    kAnywhere,  // re.search
  };

  // Error(kUnsupported) naming the pattern, the position and PCRE2's reason when it does not compile.
  explicit NamePattern(std::string pattern, Anchor anchor = Anchor::kStart);

  const std::string& text() const { return text_; }
  // Error(kUnsupported) when the pattern exceeds the step limit on this name; Error(kCorrupt) for a name that is not
  // UTF-8.
  bool matches(std::string_view name) const;

 private:
  struct Code;
  std::string text_;
  std::shared_ptr<const Code> code_;
};

}  // namespace trefoil
