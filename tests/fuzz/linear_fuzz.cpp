// Packed integers and MXFP4 on arbitrary bytes: every code pattern unpacks, packs back to the same code bits, and
// decodes without touching memory outside its row. Input: bits, layout, columns (2 bytes), then the words.
#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "fuzz.h"
#include "tensor/bf16.h"
#include "tensor/mxfp4.h"
#include "tensor/packed_int.h"

namespace trefoil {
namespace {

constexpr int kBits[] = {2, 3, 4, 8};

void fuzz_packed(int bits, PackedLayout layout, std::span<const uint32_t> words, int64_t cols) {
  std::vector<int8_t> q(static_cast<size_t>(cols));
  unpack_row(bits, layout, words, q);
  std::vector<uint32_t> again(words.size());
  pack_row(bits, layout, q, again);
  TREFOIL_CHECK(pad_bits_are_zero(bits, layout, again, cols));
  const bool same = std::equal(words.begin(), words.end(), again.begin());
  TREFOIL_CHECK(same == pad_bits_are_zero(bits, layout, words, cols));
  for (const int8_t value : q) TREFOIL_CHECK(value >= -(1 << (bits - 1)) && value < (1 << (bits - 1)));
}

void fuzz_mxfp4(std::span<const uint8_t> bytes) {
  const size_t groups = bytes.size() / 17;
  const std::vector<uint8_t> packed(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(groups * 16));
  const std::vector<uint8_t> scale(bytes.begin() + static_cast<std::ptrdiff_t>(groups * 16),
                                   bytes.begin() + static_cast<std::ptrdiff_t>(groups * 17));
  std::vector<float> out(groups * 32);
  if (!mxfp4_decode_row(packed, scale, out)) return;
  for (const float value : out) {
    TREFOIL_CHECK(std::isfinite(value) && (round_to_bf16(value) == value));
  }
}

}  // namespace
}  // namespace trefoil

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trefoil;
  fuzz_mxfp4({data, size});
  if (size < 4) return 0;
  const int bits = kBits[data[0] % 4];
  const PackedLayout layout = data[1] % 2 == 0 ? PackedLayout::kPadded : PackedLayout::kDense;
  const int64_t cols = load<uint16_t>(data + 2) % 2048;
  std::vector<uint32_t> words(static_cast<size_t>(packed_words(bits, cols, layout)));
  if (words.size() * 4 > size - 4) return 0;
  for (size_t w = 0; w < words.size(); ++w) words[w] = load<uint32_t>(data + 4 + 4 * w);
  fuzz_packed(bits, layout, words, cols);
  return 0;
}
