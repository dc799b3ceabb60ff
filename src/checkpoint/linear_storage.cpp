#include "checkpoint/linear_storage.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "tensor/mxfp4.h"

namespace trefoil {
namespace {

constexpr int kSupportedBits[] = {2, 3, 4, 8};
// Companions that this file understands. Whatever else begins with "weight" changes the numbers and is refused.
constexpr std::string_view kUnderstood[] = {".weight", ".weight_packed", ".weight_scale", ".weight_shape"};
// Prefixes of tensors that say how a Linear computes: weights, and the quantization of its inputs and outputs.
constexpr std::string_view kMeaningful[] = {".weight", ".input_", ".output_"};

bool is_float(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF32;
}

// "shard-name: tensor: BF16 [3, 4]", the start of every message about a tensor.
std::string describe(const Checkpoint& checkpoint, const TensorRef& tensor) {
  return fmt::format("{}: {}: {} {}", checkpoint.shards()[tensor.shard], tensor.info.name, to_string(tensor.info.dtype),
                     to_string(tensor.info.shape));
}

// ---- finding ----

void refuse_unknown_companions(const Checkpoint& checkpoint, const std::string& module) {
  const std::vector<TensorRef>& all = checkpoint.tensors();
  for (const std::string_view kind : kMeaningful) {
    const std::string prefix = module + std::string(kind);
    auto it = std::lower_bound(all.begin(), all.end(), prefix, [](const TensorRef& tensor, const std::string& name) {
      return tensor.info.name < name;
    });
    for (; it != all.end() && it->info.name.starts_with(prefix); ++it) {
      const std::string_view suffix = std::string_view(it->info.name).substr(module.size());
      if (std::find(std::begin(kUnderstood), std::end(kUnderstood), suffix) != std::end(kUnderstood)) continue;
      fail(ErrorCode::kUnsupported, "{}: nothing here knows how {} changes this Linear, and it is not ignored",
           describe(checkpoint, *it), suffix.substr(1));
    }
  }
}

void require_matrix(const Checkpoint& checkpoint, const TensorRef& tensor) {
  const Shape& shape = tensor.info.shape;
  if (shape.size() != 2) {
    fail(ErrorCode::kUnsupported, "{}: a Linear's tensor has two dimensions", describe(checkpoint, tensor));
  }
  if (shape[0] == 0 || shape[1] == 0) fail(ErrorCode::kCorrupt, "{}: is empty", describe(checkpoint, tensor));
}

void require_shape(const Checkpoint& checkpoint, const TensorRef& tensor, const Shape& expected) {
  if (tensor.info.shape != expected) {
    fail(ErrorCode::kCorrupt, "{}: expected {}", describe(checkpoint, tensor), to_string(expected));
  }
}

// ---- weight_shape ----

// The (out, in) that weight_shape holds.
std::array<int64_t, 2> read_weight_shape(const Checkpoint& checkpoint, const TensorRef& tensor) {
  if (tensor.info.dtype != DType::kI64 || tensor.info.shape != Shape{2}) {
    fail(ErrorCode::kCorrupt, "{}: expected I64 [2]", describe(checkpoint, tensor));
  }
  std::array<int64_t, 2> shape{};
  checkpoint.read(tensor, 0, std::as_writable_bytes(std::span(shape)));
  return shape;
}

void check_weight_shape(const Checkpoint& checkpoint, const TensorRef& tensor, int64_t out, int64_t in) {
  const std::array<int64_t, 2> stored = read_weight_shape(checkpoint, tensor);
  if (stored[0] != out || stored[1] != in) {
    fail(ErrorCode::kCorrupt, "{}: holds ({}, {}), the other tensors say ({}, {})", describe(checkpoint, tensor),
         stored[0], stored[1], out, in);
  }
}

// ---- the three formats ----

void resolve_plain(const Checkpoint& checkpoint, StoredLinear& linear) {
  const TensorRef& weight = *linear.weight;
  require_matrix(checkpoint, weight);
  if (!is_float(weight.info.dtype)) {
    fail(ErrorCode::kUnsupported, "{}: a plain weight is BF16, F16 or F32", describe(checkpoint, weight));
  }
  for (const TensorRef* companion : {linear.packed, linear.scale, linear.shape}) {
    if (companion != nullptr) {
      fail(ErrorCode::kCorrupt, "{}: stands beside the plain {}", describe(checkpoint, *companion), weight.info.name);
    }
  }
  linear.format = LinearFormat::kPlain;
  linear.out_features = weight.info.shape[0];
  linear.in_features = weight.info.shape[1];
  linear.num_bits = static_cast<int>(8 * element_size(weight.info.dtype));
}

void resolve_mxfp4(const Checkpoint& checkpoint, StoredLinear& linear) {
  const TensorRef& packed = *linear.packed;
  if (linear.scale->info.dtype != DType::kU8) {
    fail(ErrorCode::kCorrupt, "{}: beside a U8 weight_packed (MXFP4) a U8 scale is expected",
         describe(checkpoint, *linear.scale));
  }
  const int64_t out = packed.info.shape[0];
  const int64_t in = 2 * packed.info.shape[1];
  if (in % kMxfp4GroupSize != 0) {
    fail(ErrorCode::kCorrupt, "{}: {} columns are not a multiple of {}", describe(checkpoint, packed), in,
         kMxfp4GroupSize);
  }
  require_shape(checkpoint, *linear.scale, {out, in / kMxfp4GroupSize});
  if (linear.shape != nullptr) check_weight_shape(checkpoint, *linear.shape, out, in);
  linear.format = LinearFormat::kMxfp4;
  linear.out_features = out;
  linear.in_features = in;
  linear.group_size = kMxfp4GroupSize;
  linear.num_bits = 4;
}

// The width of a packed row says how wide the codes are; only a few rows narrower than a group leave a choice.
int find_num_bits(const Checkpoint& checkpoint, const TensorRef& packed, int64_t in, int hint) {
  const int64_t words = packed.info.shape[1];
  int found = 0;
  int num_found = 0;
  for (const int bits : kSupportedBits) {
    if (!detect_layout(bits, in, words)) continue;
    if (bits == hint) return bits;
    found = bits;
    ++num_found;
  }
  if (num_found == 0) {
    fail(ErrorCode::kCorrupt, "{}: {} words hold {} codes of none of 2, 3, 4 and 8 bits", describe(checkpoint, packed),
         words, in);
  }
  if (hint != 0) {
    fail(ErrorCode::kCorrupt, "{}: {} words for {} columns are not {}-bit codes as the config says",
         describe(checkpoint, packed), words, in, hint);
  }
  if (num_found > 1) {
    fail(ErrorCode::kUnsupported, "{}: {} words for {} columns fit several bit widths and the config names none",
         describe(checkpoint, packed), words, in);
  }
  return found;
}

// Where both layouts take the same number of words and yet differ (3 bits, 11 to 20 columns and the like), nothing in
// the checkpoint tells them apart.
PackedLayout find_layout(const Checkpoint& checkpoint, const TensorRef& packed, int bits, int64_t in) {
  constexpr int64_t kCodesOfOneWord = 10;  // up to here the two 3-bit layouts are the same bytes
  const int64_t words = packed.info.shape[1];
  const bool both_fit =
      words == packed_words(bits, in, PackedLayout::kPadded) && words == packed_words(bits, in, PackedLayout::kDense);
  if (bits == 3 && both_fit && in > kCodesOfOneWord) {
    fail(ErrorCode::kUnsupported, "{}: {} columns of 3 bits are too few to tell the padded layout from the dense one",
         describe(checkpoint, packed), in);
  }
  return *detect_layout(bits, in, words);
}

void resolve_packed_int(const Checkpoint& checkpoint, StoredLinear& linear, int num_bits_hint) {
  const TensorRef& packed = *linear.packed;
  const TensorRef& scale = *linear.scale;
  if (linear.shape == nullptr) {
    fail(ErrorCode::kCorrupt, "{}: there is no {}.weight_shape", describe(checkpoint, packed), linear.module);
  }
  if (!is_float(scale.info.dtype)) {
    fail(ErrorCode::kCorrupt, "{}: beside an I32 weight_packed a BF16, F16 or F32 scale is expected",
         describe(checkpoint, scale));
  }
  const auto [out, in] = read_weight_shape(checkpoint, *linear.shape);
  if (out != packed.info.shape[0] || in <= 0) {
    fail(ErrorCode::kCorrupt, "{}: holds ({}, {}), {} has {} rows", describe(checkpoint, *linear.shape), out, in,
         packed.info.name, packed.info.shape[0]);
  }
  require_matrix(checkpoint, scale);
  const int64_t groups = scale.info.shape[1];
  if (scale.info.shape[0] != out || in % groups != 0) {
    fail(ErrorCode::kCorrupt, "{}: expected {} rows and a number of groups that divides {}",
         describe(checkpoint, scale), out, in);
  }
  linear.format = LinearFormat::kPackedInt;
  linear.out_features = out;
  linear.in_features = in;
  linear.group_size = in / groups;
  linear.num_bits = find_num_bits(checkpoint, packed, in, num_bits_hint);
  linear.layout = find_layout(checkpoint, packed, linear.num_bits, in);
}

void resolve_packed(const Checkpoint& checkpoint, StoredLinear& linear, int num_bits_hint) {
  require_matrix(checkpoint, *linear.packed);
  if (linear.scale == nullptr) {
    fail(ErrorCode::kCorrupt, "{}: there is no {}.weight_scale", describe(checkpoint, *linear.packed), linear.module);
  }
  switch (linear.packed->info.dtype) {
    case DType::kU8:
      return resolve_mxfp4(checkpoint, linear);
    case DType::kI32:
      return resolve_packed_int(checkpoint, linear, num_bits_hint);
    default:
      fail(ErrorCode::kUnsupported, "{}: a packed weight is U8 (MXFP4) or I32 (packed integers)",
           describe(checkpoint, *linear.packed));
  }
}

}  // namespace

const char* to_string(LinearFormat format) {
  switch (format) {
    case LinearFormat::kPlain:
      return "plain";
    case LinearFormat::kMxfp4:
      return "mxfp4-pack-quantized";
    case LinearFormat::kPackedInt:
      return "pack-quantized";
  }
  return "unknown";
}

StoredLinear resolve_linear(const Checkpoint& checkpoint, std::string_view module, int num_bits_hint) {
  StoredLinear linear;
  linear.module = module;
  linear.weight = checkpoint.find(linear.module + ".weight");
  linear.packed = checkpoint.find(linear.module + ".weight_packed");
  linear.scale = checkpoint.find(linear.module + ".weight_scale");
  linear.shape = checkpoint.find(linear.module + ".weight_shape");
  if (linear.weight == nullptr && linear.packed == nullptr) {
    fail(ErrorCode::kNotFound, "{}: there is neither {}.weight nor {}.weight_packed", checkpoint.folder().string(),
         module, module);
  }
  refuse_unknown_companions(checkpoint, linear.module);
  if (linear.weight != nullptr) {
    resolve_plain(checkpoint, linear);
  } else {
    resolve_packed(checkpoint, linear, num_bits_hint);
  }
  return linear;
}

}  // namespace trefoil
