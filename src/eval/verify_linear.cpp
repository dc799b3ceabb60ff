#include "eval/verify_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "eval/verify_slow_decode.h"
#include "tensor/bf16.h"

namespace trefoil {
namespace {

constexpr int64_t kRowsAtATime = 16;

// The bytes of one Linear and what they are.
struct Stored {
  StoredAs storage;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<std::byte> packed;
  std::vector<std::byte> scale;

  SlowRow row(int64_t r) const {
    const size_t packed_row = packed.size() / static_cast<size_t>(rows);
    const size_t scale_row = scale.size() / static_cast<size_t>(rows);
    return {Bytes(packed).subspan(static_cast<size_t>(r) * packed_row, packed_row),
            Bytes(scale).subspan(static_cast<size_t>(r) * scale_row, scale_row)};
  }
};

void count_bf16_scale(uint16_t bits, int64_t row, size_t group, LinearValues& values) {
  constexpr uint16_t kEps = 0x3C00;  // 2^-7
  const uint16_t magnitude = bits & 0x7FFF;
  if (magnitude == 0 || magnitude >= 0x7F80) {
    values.bad_scales.add([&] { return fmt::format("row {} group {}: {}", row, group, bf16_to_f32(bits)); });
  }
  values.negative_scales += bits >> 15;
  values.subnormal_scales += magnitude != 0 && magnitude < 0x0080 ? 1 : 0;
  values.eps_scales += magnitude == kEps ? 1 : 0;
}

void count_scales(const Stored& stored, int64_t r, LinearValues& values) {
  const Bytes row = stored.row(r).scale;
  if (stored.storage.format == LinearFormat::kMxfp4) {
    for (size_t group = 0; group < row.size(); ++group) {
      if (std::to_integer<int>(row[group]) == 255) {
        values.bad_scales.add([&] { return fmt::format("row {} group {}: E8M0 255 (NaN)", r, group); });
      }
    }
    values.num_scales += row.size();
    return;
  }
  for (size_t group = 0; group < row.size() / 2; ++group) {
    count_bf16_scale(load<uint16_t>(row.data() + 2 * group), r, group, values);
  }
  values.num_scales += row.size() / 2;
}

void check_pads(const Stored& stored, int64_t r, LinearValues& values) {
  if (stored.storage.format != LinearFormat::kPackedInt) return;
  const Bytes row = stored.row(r).packed;
  std::vector<uint32_t> words(row.size() / sizeof(uint32_t));
  std::memcpy(words.data(), row.data(), row.size());
  if (!pad_bits_are_zero(stored.storage.num_bits, stored.storage.layout, words, stored.cols)) {
    values.bad_pads.add([&] { return fmt::format("row {}", r); });
  }
}

// Rows [begin, end) by the slow path, counting codes on the way.
std::vector<uint16_t> decode_slowly(const Stored& stored, int64_t begin, int64_t end, LinearValues& values) {
  const auto cols = static_cast<size_t>(stored.cols);
  std::vector<uint16_t> weights(static_cast<size_t>(end - begin) * cols);
  std::vector<uint8_t> codes(cols);
  for (int64_t r = begin; r < end; ++r) {
    slow_codes(stored.storage, stored.row(r), codes);
    for (const uint8_t code : codes) ++values.histogram[code];
    slow_decode(stored.storage, stored.row(r), codes,
                std::span(weights).subspan(static_cast<size_t>(r - begin) * cols, cols));
  }
  return weights;
}

// A value of the product's path is right when it is exactly the bf16 number of the slow path.
void compare_paths(std::span<const float> fast, std::span<const uint16_t> slow, int64_t row_begin, int64_t cols,
                   LinearValues& values) {
  for (size_t i = 0; i < slow.size(); ++i) {
    if (std::bit_cast<uint32_t>(fast[i]) == static_cast<uint32_t>(slow[i]) << 16) continue;
    values.mismatches.add([&] {
      const auto at = static_cast<int64_t>(i);
      return fmt::format("row {} column {}: bits {:08x}, the second path says {:04x}0000", row_begin + at / cols,
                         at % cols, std::bit_cast<uint32_t>(fast[i]), slow[i]);
    });
  }
}

// Sums in f64: 1e7 weights of similar size lose nothing that matters.
void compare_with_source(std::span<const float> source, std::span<const uint16_t> weights, int64_t cols,
                         int64_t group_size, LinearValues& values) {
  for (size_t i = 0; i < weights.size(); ++i) {
    const double difference = static_cast<double>(bf16_to_f32(weights[i])) - source[i];
    values.error_norm2 += difference * difference;
    values.source_norm2 += static_cast<double>(source[i]) * source[i];
    const int64_t col = static_cast<int64_t>(i) % cols;
    if (col % group_size != 0 && source[i] != source[i - 1]) values.is_source_constant = false;
  }
}

// Resolves the Linear in a checkpoint, demanding its shape.
StoredLinear resolve(const Checkpoint& checkpoint, const ExpertLinear& linear, int num_bits_hint) {
  const StoredLinear stored = resolve_linear(checkpoint, linear.module, num_bits_hint);
  if (stored.out_features != linear.out_features || stored.in_features != linear.in_features) {
    fail(ErrorCode::kCorrupt, "[{}, {}] in {}, expected [{}, {}]", stored.out_features, stored.in_features,
         checkpoint.folder().string(), linear.out_features, linear.in_features);
  }
  return stored;
}

// One of the two other readers of a Linear: the product's own path, or the source. Stops at its first error.
class Decoder {
 public:
  Decoder(const Checkpoint* checkpoint, const ExpertLinear& linear, int num_bits_hint, std::string& error)
      : checkpoint_(checkpoint), error_(error) {
    if (checkpoint_ == nullptr) return;
    guard([&] { stored_ = resolve(*checkpoint, linear, num_bits_hint); });
  }

  bool is_working() const { return checkpoint_ != nullptr && error_.empty(); }

  // Rows [begin, end); false, and no longer working, when they do not decode.
  bool decode(int64_t begin, int64_t end, std::span<float> out) {
    if (!is_working()) return false;
    guard([&] { decode_linear(*checkpoint_, stored_, begin, end, out); });
    return is_working();
  }

 private:
  template <typename Body>
  void guard(const Body& body) {
    try {
      body();
    } catch (const Error& error) {
      error_ = error.what();
    }
  }

  const Checkpoint* checkpoint_;
  StoredLinear stored_;
  std::string& error_;
};

}  // namespace

double LinearValues::relative_error() const {
  if (error_norm2 == 0) return 0;
  return source_norm2 == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(error_norm2 / source_norm2);
}

LinearValues LinearReader::read(const ExpertLinear& linear) const {
  LinearValues values;
  Stored stored{*linear.storage, linear.out_features, linear.in_features, {}, {}};
  try {
    stored.packed = scan.read_all(*linear.packed);
    stored.scale = scan.read_all(*linear.scale);
  } catch (const Error& error) {
    values.read_error = error.what();
    return values;
  }
  values.is_read = true;
  for (int64_t r = 0; r < stored.rows; ++r) {
    count_scales(stored, r, values);
    check_pads(stored, r, values);
  }
  // A bad scale makes every path disagree or refuse; it is reported as what it is, once.
  const bool is_finite = values.bad_scales.count == 0;
  Decoder product(is_finite ? checkpoint : nullptr, linear, num_bits_hint, values.decode_error);
  Decoder origin(is_finite ? source : nullptr, linear, 0, values.source_error);
  for (int64_t begin = 0; begin < stored.rows; begin += kRowsAtATime) {
    const int64_t end = std::min(stored.rows, begin + kRowsAtATime);
    const std::vector<uint16_t> slow = decode_slowly(stored, begin, end, values);
    std::vector<float> other(slow.size());
    if (product.decode(begin, end, other)) compare_paths(other, slow, begin, stored.cols, values);
    if (origin.decode(begin, end, other))
      compare_with_source(other, slow, stored.cols, stored.storage.group_size, values);
  }
  values.is_decoded = product.is_working();
  values.is_compared = origin.is_working();
  values.num_codes = static_cast<int>(
      std::count_if(values.histogram.begin(), values.histogram.end(), [](uint64_t n) { return n > 0; }));
  return values;
}

}  // namespace trefoil
