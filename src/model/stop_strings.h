// Holds back text that may become a stop string, so that none of one is ever shown.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trefoil {

class StopStrings {
 public:
  // Error(kInvalidArgument) for an empty stop string.
  explicit StopStrings(std::vector<std::string> stops);

  // Takes the next piece of text and returns what may be shown. How the text is cut into pieces does not matter: a stop
  // string counts at its last byte, and of several ending there the longest.
  std::string push(std::string_view piece);
  // The end of the text: what was held back turned out to be ordinary. Nothing after a match.
  std::string flush();

  // The stop string that was met. What came before it has been returned; push() returns nothing more.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;  // the longest end of the text that begins some stop string
  std::optional<std::string> matched_;
};

}  // namespace trefoil
