// What a recoded checkpoint was before its first recode, so that a later one can restore it byte for byte. Lies beside
// the shards as recode.json:
//   {"original": {"form": "w3-dense", "actorder": "static", "observer": "memoryless_minmax", "package_order": false}}
#pragma once

#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/quantization_config.h"
#include "trefoil/recode.h"

namespace trefoil {

struct RecodeOrigin {
  PackedForm form = PackedForm::kW3Dense;
  std::string actorder;  // empty: null
  std::string observer;
  bool package_order = false;  // tensors stand in the safetensors package's order (tensor_order.h)
};

extern const char* const kOriginFile;  // "recode.json"

// The folder's recode.json; nothing when there is none. Error(kCorrupt) when it is not one.
std::optional<RecodeOrigin> load_origin(const fs::path& folder);
// What the checkpoint is now, for one that was never recoded. `group` is its quantization_config's.
RecodeOrigin describe_origin(const Checkpoint& checkpoint, PackedForm form, const QuantizationGroup& group);
std::string write_origin(const RecodeOrigin& origin);

}  // namespace trefoil
