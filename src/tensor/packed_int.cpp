#include "tensor/packed_int.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "tensor/bf16.h"

namespace trefoil {
namespace {

constexpr int kWordBits = 32;

bool supported(int bits) {
  return bits == 2 || bits == 3 || bits == 4 || bits == 8;
}

// Where codes sit in a row: `codes_per_word` of them in each word (padded), or one unbroken stream (dense).
int codes_per_word(int bits) {
  return kWordBits / bits;
}

uint32_t code_mask(int bits) {
  return (1u << bits) - 1u;
}

void pack_padded(int bits, std::span<const int8_t> q, std::span<uint32_t> words) {
  const size_t per_word = static_cast<size_t>(codes_per_word(bits));
  const int offset = 1 << (bits - 1);
  for (size_t k = 0; k < q.size(); ++k) {
    const uint32_t code = static_cast<uint32_t>(q[k] + offset) & code_mask(bits);
    words[k / per_word] |= code << (static_cast<size_t>(bits) * (k % per_word));
  }
}

void unpack_padded(int bits, std::span<const uint32_t> words, std::span<int8_t> q) {
  const size_t per_word = static_cast<size_t>(codes_per_word(bits));
  const int offset = 1 << (bits - 1);
  for (size_t first = 0; first < q.size(); first += per_word) {
    uint32_t word = words[first / per_word];
    const size_t end = std::min(first + per_word, q.size());
    for (size_t k = first; k < end; ++k, word >>= bits) {
      q[k] = static_cast<int8_t>(static_cast<int>(word & code_mask(bits)) - offset);
    }
  }
}

// `pending` holds the stream's next bits, lowest first; a code that straddles two words is in it whole.
void pack_dense(int bits, std::span<const int8_t> q, std::span<uint32_t> words) {
  const int offset = 1 << (bits - 1);
  uint64_t pending = 0;
  int num_pending = 0;
  size_t next = 0;
  for (const int8_t value : q) {
    pending |= static_cast<uint64_t>(static_cast<uint32_t>(value + offset) & code_mask(bits)) << num_pending;
    num_pending += bits;
    if (num_pending >= kWordBits) {
      words[next++] = static_cast<uint32_t>(pending);
      pending >>= kWordBits;
      num_pending -= kWordBits;
    }
  }
  if (num_pending > 0) words[next] = static_cast<uint32_t>(pending);
}

void unpack_dense(int bits, std::span<const uint32_t> words, std::span<int8_t> q) {
  const int offset = 1 << (bits - 1);
  uint64_t pending = 0;
  int num_pending = 0;
  size_t next = 0;
  for (int8_t& value : q) {
    if (num_pending < bits) {
      pending |= static_cast<uint64_t>(words[next++]) << num_pending;
      num_pending += kWordBits;
    }
    value = static_cast<int8_t>(static_cast<int>(pending & code_mask(bits)) - offset);
    pending >>= bits;
    num_pending -= bits;
  }
}

}  // namespace

const char* to_string(PackedLayout layout) {
  return layout == PackedLayout::kPadded ? "padded" : "dense";
}

int64_t packed_words(int bits, int64_t cols, PackedLayout layout) {
  TREFOIL_CHECK(supported(bits) && cols >= 0);
  if (layout == PackedLayout::kPadded) {
    const int64_t per_word = codes_per_word(bits);
    return cols / per_word + (cols % per_word != 0 ? 1 : 0);
  }
  // ceil(cols * bits / 32) without forming the product, which overflows for widths only a hostile file has.
  return cols / kWordBits * bits + ceil_div(cols % kWordBits * bits, kWordBits);
}

std::optional<PackedLayout> detect_layout(int bits, int64_t cols, int64_t words) {
  if (words == packed_words(bits, cols, PackedLayout::kDense)) return PackedLayout::kDense;
  if (words == packed_words(bits, cols, PackedLayout::kPadded)) return PackedLayout::kPadded;
  return std::nullopt;
}

void pack_row(int bits, PackedLayout layout, std::span<const int8_t> q, std::span<uint32_t> words) {
  TREFOIL_CHECK(static_cast<int64_t>(words.size()) == packed_words(bits, static_cast<int64_t>(q.size()), layout));
  std::fill(words.begin(), words.end(), 0u);
  if (layout == PackedLayout::kPadded) {
    pack_padded(bits, q, words);
  } else {
    pack_dense(bits, q, words);
  }
}

void unpack_row(int bits, PackedLayout layout, std::span<const uint32_t> words, std::span<int8_t> q) {
  TREFOIL_CHECK(static_cast<int64_t>(words.size()) == packed_words(bits, static_cast<int64_t>(q.size()), layout));
  if (layout == PackedLayout::kPadded) {
    unpack_padded(bits, words, q);
  } else {
    unpack_dense(bits, words, q);
  }
}

bool pad_bits_are_zero(int bits, PackedLayout layout, std::span<const uint32_t> words, int64_t cols) {
  TREFOIL_CHECK(static_cast<int64_t>(words.size()) == packed_words(bits, cols, layout));
  const int64_t bits_per_word = layout == PackedLayout::kPadded ? codes_per_word(bits) * bits : kWordBits;
  const int64_t cols_per_word = codes_per_word(bits);
  for (size_t w = 0; w < words.size(); ++w) {
    const int64_t index = static_cast<int64_t>(w);
    const int64_t left =
        layout == PackedLayout::kPadded ? (cols - index * cols_per_word) * bits : cols * bits - index * kWordBits;
    const int64_t used = std::min(bits_per_word, left);
    if (used < kWordBits && (words[w] >> used) != 0) return false;
  }
  return true;
}

uint16_t dequantize_bf16(int q, uint16_t scale_bf16) {
  // |q| <= 128 has at most 8 significant bits and so has the scale: the f32 product is exact, and this rounds once.
  return f32_to_bf16(static_cast<float>(q) * bf16_to_f32(scale_bf16));
}

}  // namespace trefoil
