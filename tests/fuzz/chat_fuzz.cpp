// Chat requests. An accepted one renders to segments without empty ones, whose markup this program wrote.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "fuzz.h"
#include "trefoil/chat.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trefoil;
  std::vector<ChatSegment> segments;
  const bool accepted = fuzz::accepts([&] { segments = render_chat(parse_chat_request(fuzz::as_text(data, size))); });
  if (!accepted) return 0;
  TREFOIL_CHECK(!segments.empty());
  constexpr std::array<std::string_view, 4> kMarkup = {"<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"};
  int open = 0;
  for (const ChatSegment& segment : segments) {
    TREFOIL_CHECK(!segment.text.empty());
    if (!segment.is_markup) continue;
    TREFOIL_CHECK(std::find(kMarkup.begin(), kMarkup.end(), segment.text) != kMarkup.end());
    open += (segment.text == "<|open|>") - (segment.text == "<|close|>");
    TREFOIL_CHECK(open >= 0);
    if (segment.text == "<|end_of_msg|>") TREFOIL_CHECK(open == 0);
  }
  return 0;
}
