// The parser of tokenizer_config.json. Accepted, its 256 names are distinct, found again, and none is empty.
#include "base/check.h"
#include "fuzz.h"
#include "tokenizer/special_tokens.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trefoil;
  constexpr int32_t kFirst = 300;
  SpecialTokenSet set;
  if (!fuzz::accepts([&] { set = SpecialTokenSet::parse(fuzz::as_text(data, size), "fuzz", kFirst); })) return 0;
  for (int32_t id = kFirst; id < kFirst + kNumSpecialTokens; ++id) {
    TREFOIL_CHECK(!set.token_name(id).empty());
    TREFOIL_CHECK(set.find(set.token_name(id)) == id);
    const auto found = set.find_in(set.token_name(id), 0);
    TREFOIL_CHECK(found && found->begin == 0 && found->id == id);
  }
  return 0;
}
