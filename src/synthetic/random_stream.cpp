#include "synthetic/random_stream.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <string>

#include "base/check.h"
#include "base/sha256.h"
#include "base/splitmix64.h"

namespace trefoil {
namespace {

// ---- bits ----

uint64_t key_of(uint64_t seed, std::string_view name) {
  const std::string hex = sha256_hex(as_bytes_of(fmt::format("{}/{}", seed, name)));
  uint64_t key = 0;
  std::from_chars(hex.data(), hex.data() + 16, key, 16);
  return key;
}

// ---- from 32 bits to a normal number ----

constexpr int kCellBits = 11;
constexpr size_t kCells = size_t{1} << kCellBits;
constexpr int kOffsetBits = 31 - kCellBits;               // of a number: 1 sign, 11 cell, 20 place in the cell
constexpr int kTailOffsetBits = kOffsetBits - kCellBits;  // in the last cell: 11 cell of the tail, 9 place in it

// |x| over one cell of equal probability.
struct Cell {
  float begin;
  float width;
};
using Cells = std::array<Cell, kCells>;

// Cells of |x| between the quantiles at which the probability above is `above` and 0, the last one ended at half a step.
Cells make_cells(double above) {
  Cells cells{};
  const auto quantile = [&](double cell) {
    const double p = above * (1 - cell / static_cast<double>(kCells));  // P(|x| > quantile)
    return upper_normal_quantile(p / 2);
  };
  double begin = quantile(0);
  for (size_t i = 0; i < kCells; ++i) {
    const bool is_last = i + 1 == kCells;
    const double last_step = std::ldexp(1.0, -kTailOffsetBits - 1);
    const double end = quantile(is_last ? static_cast<double>(kCells) - last_step : static_cast<double>(i + 1));
    cells[i] = {static_cast<float>(begin), static_cast<float>(end - begin)};
    begin = end;
  }
  return cells;
}

struct NormalTables {
  Cells body = make_cells(1.0);
  Cells tail = make_cells(1.0 / static_cast<double>(kCells));
};

float at(const Cell& cell, uint32_t offset, int offset_bits) {
  const float step = std::bit_cast<float>(static_cast<uint32_t>(127 - offset_bits) << 23);
  return cell.begin + cell.width * (static_cast<float>(static_cast<int32_t>(offset)) * step);
}

float normal_of(const NormalTables& tables, uint32_t bits) {
  const uint32_t cell = (bits >> kOffsetBits) & (kCells - 1);
  const uint32_t offset = bits & ((1u << kOffsetBits) - 1);
  float x;
  if (cell != kCells - 1) {
    x = at(tables.body[cell], offset, kOffsetBits);
  } else {
    x = at(tables.tail[offset >> kTailOffsetBits], offset & ((1u << kTailOffsetBits) - 1), kTailOffsetBits);
  }
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) | (bits & 0x80000000u));
}

template <typename FromBits>
void fill(uint64_t key, uint64_t first, std::span<float> out, const FromBits& from_bits) {
  TREFOIL_CHECK(first % 2 == 0 && out.size() % 2 == 0);
  SplitMix64 random(key + first / 2 * SplitMix64::kStep);
  for (size_t i = 0; i < out.size(); i += 2) {
    const uint64_t bits = random.next();
    out[i] = from_bits(static_cast<uint32_t>(bits));
    out[i + 1] = from_bits(static_cast<uint32_t>(bits >> 32));
  }
}

}  // namespace

RandomStream::RandomStream(uint64_t seed, std::string_view name) : key_(key_of(seed, name)) {}

void RandomStream::normal(uint64_t first, std::span<float> out) const {
  static const NormalTables tables;
  fill(key_, first, out, [](uint32_t bits) { return normal_of(tables, bits); });
}

void RandomStream::uniform(uint64_t first, std::span<float> out) const {
  fill(key_, first, out, [](uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; });
}

double upper_normal_quantile(double p) {
  TREFOIL_CHECK(p > 0 && p < 1);
  double low = -40;
  double high = 40;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::sqrt(2.0)) / 2 > p ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace trefoil
