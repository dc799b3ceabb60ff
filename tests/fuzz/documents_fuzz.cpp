// Lines of JSON lines. An accepted document has text in UTF-8 or ids that are not negative, not both.
#include <algorithm>

#include "base/check.h"
#include "fuzz.h"
#include "text/documents.h"
#include "tokenizer/utf8.h"

namespace {

void read_line(std::string_view line) {
  using namespace trefoil;
  Document document;
  if (!fuzz::accepts([&] { document = parse_document_line(line, "fuzz:1"); })) return;
  TREFOIL_CHECK(find_invalid_utf8(document.text) == std::string::npos);
  TREFOIL_CHECK(find_invalid_utf8(document.source) == std::string::npos);
  TREFOIL_CHECK(document.has_ids ? document.text.empty() : document.input_ids.empty());
  TREFOIL_CHECK(std::all_of(document.input_ids.begin(), document.input_ids.end(), [](int32_t id) { return id >= 0; }));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text = trefoil::fuzz::as_text(data, size);
  while (!text.empty()) {
    const size_t newline = text.find('\n');
    read_line(text.substr(0, newline));
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
  }
  return 0;
}
