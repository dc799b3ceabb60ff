// How one Linear of a checkpoint is stored, decided by the tensors on disk and never by the config, and the one
// function that turns any storage into numbers. docs/formats.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "checkpoint/checkpoint.h"
#include "tensor/packed_int.h"

namespace trefoil {

enum class LinearFormat { kPlain, kMxfp4, kPackedInt };
const char* to_string(LinearFormat format);

// A Linear of weight [out_features, in_features]. The TensorRefs point into the Checkpoint.
struct StoredLinear {
  std::string module;  // tensor name without ".weight", ".weight_packed", ...
  LinearFormat format = LinearFormat::kPlain;
  int64_t out_features = 0;
  int64_t in_features = 0;
  int64_t group_size = 0;                      // columns a scale serves (kMxfp4: 32); 0 for kPlain
  int num_bits = 0;                            // kPackedInt: 2, 3, 4, 8; kMxfp4: 4; kPlain: bits of the dtype
  PackedLayout layout = PackedLayout::kDense;  // kPackedInt only
  const TensorRef* weight = nullptr;           // kPlain: BF16, F16 or F32
  const TensorRef* packed = nullptr;
  const TensorRef* scale = nullptr;
  const TensorRef* shape = nullptr;  // weight_shape, kPackedInt only
};

// Looks at module + ".weight", ".weight_packed", ".weight_scale", ".weight_shape" and refuses to overlook anything
// else. Errors: kNotFound when nothing is there; kCorrupt for contradicting dtypes, shapes, or both a plain and a
// packed weight; kUnsupported for zero points, g_idx and every other "weight*", "input_*" or "output_*" companion, and
// for 3-bit rows so narrow that their layout cannot be told. A bias is another tensor and the caller's. `num_bits_hint`
// (from quantization_config, 0 = none) is used only where widths alone are ambiguous and is checked against them; it
// says nothing about plain and MXFP4 weights, which their dtypes prove.
StoredLinear resolve_linear(const Checkpoint& checkpoint, std::string_view module, int num_bits_hint = 0);

// Decodes rows [row_begin, row_end) to f32, row-major [rows, in_features]. An integer weight is q * scale rounded to
// the scale's dtype, as the reference does (dequantize_bf16; F16 and F32 scales alike). Error(kCorrupt) with tensor
// name and row for values that cannot be decoded (scale byte 255, non-finite scale or value). Reads about 1 MiB at a
// time, any Access.
void decode_linear(const Checkpoint& checkpoint, const StoredLinear& linear, int64_t row_begin, int64_t row_end,
                   std::span<float> out);

// Stored bytes of consecutive rows of a Linear, in memory that someone else owns: of all rows, or of some.
struct StoredMatrix {
  const StoredLinear* linear = nullptr;  // what the bytes are
  int64_t first_row = 0;                 // the row that the bytes begin with
  Bytes weight;                          // kPlain; any alignment, like the other two
  Bytes packed;                          // kMxfp4, kPackedInt
  Bytes scale;
};

// decode_linear() from memory: the same bits, the same errors. The rows must be there.
void decode_stored(const StoredMatrix& matrix, int64_t row_begin, int64_t row_end, std::span<float> out);

// Checkpoint::read_ahead() of all that decode_linear() reads.
void read_linear_ahead(const Checkpoint& checkpoint, const StoredLinear& linear);

}  // namespace trefoil
