#include "support/expect_html.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace trefoil {

void expect_balanced(const std::string& html) {
  const std::set<std::string> empty_elements = {"meta", "!DOCTYPE"};
  std::vector<std::string> open;
  size_t at = 0;
  while ((at = html.find('<', at)) != std::string::npos) {
    const size_t end = html.find('>', at);
    ASSERT_NE(end, std::string::npos);
    const std::string tag = html.substr(at + 1, end - at - 1);
    ASSERT_FALSE(tag.empty());
    EXPECT_EQ(std::count(tag.begin(), tag.end(), '"') % 2, 0) << tag;
    const std::string name = tag.substr(tag[0] == '/', tag.find_first_of(" /", 1) - (tag[0] == '/'));
    if (tag[0] == '/') {
      ASSERT_FALSE(open.empty()) << tag;
      EXPECT_EQ("/" + open.back(), tag);
      open.pop_back();
    } else if (tag.back() != '/' && empty_elements.count(name) == 0) {
      open.push_back(name);
    }
    at = end + 1;
  }
  EXPECT_TRUE(open.empty()) << open.back();
}

void expect_self_contained(const std::string& html) {
  for (const char* bad :
       {"http:", "https:", "src=", "href=", "url(", "@import", "<script", "<link", "<iframe", "<img", "javascript:"}) {
    EXPECT_EQ(html.find(bad), std::string::npos) << bad;
  }
}

}  // namespace trefoil
