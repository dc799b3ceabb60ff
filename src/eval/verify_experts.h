// The routed experts of a scanned folder: which Linears the config promises, which tensors each has, how they are
// stored.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/linear_storage.h"
#include "eval/verify_scan.h"
#include "trefoil/verify.h"

namespace trefoil {

// "language_model.model.layers.3.block_sparse_moe.experts.17.w1.weight_packed" taken apart.
struct ExpertTensorName {
  std::string_view module;  // up to and with "w1"
  std::string_view suffix;  // "weight_packed"
  int64_t layer = 0;
  int64_t expert = 0;
  int matrix = 0;  // 1, 2 or 3
};
// Nothing for any other name.
std::optional<ExpertTensorName> parse_expert_tensor_name(std::string_view name);

// How an expert Linear is stored; equal model-wide in every checkpoint a loader expects.
struct StoredAs {
  LinearFormat format = LinearFormat::kPackedInt;
  int num_bits = 0;
  PackedLayout layout = PackedLayout::kDense;  // kDense for all but padded 3-bit
  int64_t group_size = 0;
  bool operator==(const StoredAs&) const = default;
};
// "int3 dense group 64"
std::string to_string(const StoredAs& storage);

struct ExpertLinear {
  std::string module;
  int64_t layer = 0;
  int64_t expert = 0;
  int matrix = 0;
  const ScannedTensor* packed = nullptr;  // null when absent
  const ScannedTensor* scale = nullptr;
  const ScannedTensor* shape = nullptr;
  int64_t out_features = 0;
  int64_t in_features = 0;
  std::optional<StoredAs> storage;  // nothing when its tensors contradict each other; set by check_shapes()
};

struct ExpertSet {
  std::vector<ExpertLinear> linears;  // by layer, expert, matrix
  std::optional<StoredAs> storage;    // of most of them; nothing when none is sound
};

// "structure": every expert Linear of the config has weight_packed, weight_scale and weight_shape (MXFP4: the first
// two) and no other tensor; no other Linear is packed. Fills `experts` with names and tensors.
VerifyCheck check_structure(const FolderScan& scan, const VerifyOptions& options, ExpertSet* experts);

// "shapes": dtypes and shapes agree with the config, with weight_shape and with each other, in one storage model-wide.
// `claimed_bits` (0: unknown) is what quantization_config says; it only orders the guesses.
VerifyCheck check_shapes(const FolderScan& scan, const VerifyOptions& options, int claimed_bits, ExpertSet* experts);

}  // namespace trefoil
