#include "eval/eval_text.h"

#include "base/sha256.h"

namespace trefoil {

std::string token_hash(const EvalText& text) {
  Sha256 hash;
  for (const EvalRow& row : text.rows) {
    const int32_t length = static_cast<int32_t>(row.ids.size());
    hash.update(std::as_bytes(std::span(&length, 1)));
    hash.update(std::as_bytes(std::span(row.ids)));
  }
  return hash.hex();
}

}  // namespace trefoil
