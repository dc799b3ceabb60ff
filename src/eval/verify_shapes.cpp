#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/bytes.h"
#include "eval/verify_check.h"
#include "eval/verify_experts.h"
#include "tensor/mxfp4.h"

namespace trefoil {
namespace {

std::string describe(const TensorInfo& info) {
  return fmt::format("{} {}", to_string(info.dtype), to_string(info.shape));
}

// Records a failure unless the tensor has this dtype and shape.
bool demand(const FolderScan& scan, const ScannedTensor& tensor, DType dtype, const Shape& shape,
            CheckRecorder& check) {
  if (tensor.info->dtype == dtype && tensor.info->shape == shape) return true;
  check.fail(tensor.info->name, scan.shard_name(tensor), fmt::format("{} {}", to_string(dtype), to_string(shape)),
             describe(*tensor.info));
  return false;
}

// weight_shape's two numbers against the config's; without a config they are the only source there is.
bool check_weight_shape(const FolderScan& scan, ExpertLinear& linear, CheckRecorder& check) {
  if (!demand(scan, *linear.shape, DType::kI64, {2}, check)) return false;
  std::array<int64_t, 2> value{};
  scan.read(*linear.shape, 0, std::as_writable_bytes(std::span(value)));
  if (linear.out_features == 0) {
    linear.out_features = value[0];
    linear.in_features = value[1];
  }
  if (value[0] > 0 && value[1] > 0 && value[0] == linear.out_features && value[1] == linear.in_features) return true;
  check.fail(linear.shape->info->name, scan.shard_name(*linear.shape),
             fmt::format("[{}, {}]", linear.out_features, linear.in_features),
             fmt::format("[{}, {}]", value[0], value[1]));
  return false;
}

std::optional<StoredAs> resolve_mxfp4(const FolderScan& scan, ExpertLinear& linear, CheckRecorder& check) {
  if (linear.out_features == 0 && linear.packed->info->shape.size() == 2) {  // no config to ask
    linear.out_features = linear.packed->info->shape[0];
    linear.in_features = linear.packed->info->shape[1] * 2;
  }
  bool ok = demand(scan, *linear.packed, DType::kU8, {linear.out_features, linear.in_features / 2}, check);
  ok &= demand(scan, *linear.scale, DType::kU8, {linear.out_features, linear.in_features / kMxfp4GroupSize}, check);
  if (ok && linear.in_features % kMxfp4GroupSize != 0) {
    check.fail(linear.module, scan.shard_name(*linear.packed), "a width divisible by 32",
               fmt::format("{}", linear.in_features));
    ok = false;
  }
  if (!ok) return std::nullopt;
  return StoredAs{LinearFormat::kMxfp4, 4, PackedLayout::kDense, kMxfp4GroupSize};
}

// The bits and layout whose row takes `words` words, the claimed bits first.
std::optional<std::pair<int, PackedLayout>> fit_width(int64_t words, int64_t cols, int claimed_bits) {
  std::array<int, 5> candidates = {claimed_bits, 3, 4, 2, 8};
  for (const int bits : candidates) {
    if (bits != 2 && bits != 3 && bits != 4 && bits != 8) continue;
    if (const auto layout = detect_layout(bits, cols, words)) return std::pair(bits, *layout);
  }
  return std::nullopt;
}

std::optional<StoredAs> resolve_packed_int(const FolderScan& scan, ExpertLinear& linear, int claimed_bits,
                                           CheckRecorder& check) {
  if (!check_weight_shape(scan, linear, check)) return std::nullopt;
  const TensorInfo& packed = *linear.packed->info;
  const TensorInfo& scale = *linear.scale->info;
  const std::string& packed_file = scan.shard_name(*linear.packed);
  const std::string& scale_file = scan.shard_name(*linear.scale);
  bool ok = true;
  if (packed.dtype != DType::kI32 || packed.shape.size() != 2 || packed.shape[0] != linear.out_features) {
    check.fail(packed.name, packed_file, fmt::format("I32 [{}, words]", linear.out_features), describe(packed));
    ok = false;
  }
  if (scale.dtype != DType::kBF16 || scale.shape.size() != 2 || scale.shape[0] != linear.out_features ||
      scale.shape[1] < 1 || linear.in_features % scale.shape[1] != 0) {
    check.fail(scale.name, scale_file,
               fmt::format("BF16 [{}, groups], groups dividing {}", linear.out_features, linear.in_features),
               describe(scale));
    ok = false;
  }
  if (!ok) return std::nullopt;
  const auto width = fit_width(packed.shape[1], linear.in_features, claimed_bits);
  if (!width) {
    check.fail(packed.name, packed_file,
               fmt::format("{} (dense) or {} (padded) words for {} columns of 3 bits, or those of 2, 4 or 8 bits",
                           packed_words(3, linear.in_features, PackedLayout::kDense),
                           packed_words(3, linear.in_features, PackedLayout::kPadded), linear.in_features),
               fmt::format("{} words", packed.shape[1]));
    return std::nullopt;
  }
  return StoredAs{LinearFormat::kPackedInt, width->first, width->second, linear.in_features / scale.shape[1]};
}

std::optional<StoredAs> resolve_storage(const FolderScan& scan, ExpertLinear& linear, int claimed_bits,
                                        CheckRecorder& check) {
  if (linear.packed == nullptr || linear.scale == nullptr) return std::nullopt;  // reported by check_structure()
  if (linear.packed->info->dtype == DType::kU8) return resolve_mxfp4(scan, linear, check);
  if (linear.shape == nullptr) return std::nullopt;
  return resolve_packed_int(scan, linear, claimed_bits, check);
}

std::optional<StoredAs> most_frequent(const std::vector<ExpertLinear>& linears) {
  std::vector<std::pair<StoredAs, int64_t>> counts;
  for (const ExpertLinear& linear : linears) {
    if (!linear.storage) continue;
    const auto known =
        std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == *linear.storage; });
    if (known != counts.end()) {
      ++known->second;
    } else {
      counts.emplace_back(*linear.storage, 1);
    }
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? std::nullopt : std::optional(most->first);
}

}  // namespace

std::string to_string(const StoredAs& storage) {
  if (storage.format == LinearFormat::kMxfp4) return "MXFP4 group 32";
  const bool has_two_layouts = storage.num_bits == 3;
  return fmt::format("int{}{}{} group {}", storage.num_bits, has_two_layouts ? " " : "",
                     has_two_layouts ? to_string(storage.layout) : "", storage.group_size);
}

VerifyCheck check_shapes(const FolderScan& scan, const VerifyOptions& options, int claimed_bits, ExpertSet* experts) {
  CheckRecorder check("shapes", "dtypes and shapes are the config's, in one layout model-wide", "expert Linears",
                      options.max_findings);
  for (ExpertLinear& linear : experts->linears) {
    check.count();
    linear.storage = resolve_storage(scan, linear, claimed_bits, check);
  }
  experts->storage = most_frequent(experts->linears);
  if (!experts->storage) {
    check.fail("", "", "an expert stored in a known way", "none");
    return std::move(check).finish();
  }
  check.note("experts are " + to_string(*experts->storage));
  for (const ExpertLinear& linear : experts->linears) {
    if (!linear.storage || *linear.storage == *experts->storage) continue;
    check.fail(linear.packed->info->name, scan.shard_name(*linear.packed),
               to_string(*experts->storage) + ", like the others", to_string(*linear.storage));
  }
  return std::move(check).finish();
}

}  // namespace trefoil
