// tiktoken.model: one `<base64 of the token's bytes> <rank>` per line. The rank is the id.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trefoil {

// The tokens by rank. `name` goes into messages. Blank lines and CRLF are accepted, as tiktoken accepts them;
// everything else is Error(kCorrupt) with name and line: text that is not canonical base64, an empty token, a missing
// or malformed rank, a rank or a token that occurs twice, ranks that are not 0 to n-1, one of the 256 single bytes
// missing (without it some text could not be encoded). The largest rank is bounded by the number of lines, so hostile
// ranks cost nothing.
std::vector<std::string> parse_tiktoken(std::string_view text, const std::string& name);

}  // namespace trefoil
