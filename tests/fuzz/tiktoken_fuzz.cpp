// The parser of tiktoken.model. An accepted vocabulary has every single byte, no token twice, and encodes its own
// tokens.
#include "base/check.h"
#include "fuzz.h"
#include "tokenizer/rank_bpe.h"
#include "tokenizer/tiktoken_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trefoil;
  std::vector<std::string> tokens;
  if (!fuzz::accepts([&] { tokens = parse_tiktoken(fuzz::as_text(data, size), "fuzz"); })) return 0;
  TREFOIL_CHECK(tokens.size() >= 256);
  const RankBpe bpe(tokens);
  RankBpe::Scratch scratch;
  for (int32_t id = 0; id < bpe.size(); ++id) {
    std::vector<int32_t> ids;
    bpe.encode(bpe.token(id), &scratch, &ids);
    TREFOIL_CHECK(ids == std::vector<int32_t>{id});
    bpe.encode(tokens[static_cast<size_t>(id)] + tokens.back(), &scratch, &ids);  // merges without end or crash
  }
  return 0;
}
