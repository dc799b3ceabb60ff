#include "quantize/source_check.h"

#include "base/error.h"
#include "checkpoint/tensor_inventory.h"

namespace trefoil {

void check_text_tensors(const Checkpoint& checkpoint, const ModelConfig& config) {
  const TensorInventory inventory(config, std::nullopt, ExpertStorage(), text_prefix_of(checkpoint));
  inventory.for_each_expected([&](const std::string& name, const TensorIdentity& identity) {
    if (is_routed(identity.component)) return;
    const TensorRef* tensor = checkpoint.find(name);
    if (tensor == nullptr) fail(ErrorCode::kNotFound, "{}: config.json asks for it and no shard holds it", name);
    const ExpectedTensor& expected = *identity.expected;
    if (!expected.matches(tensor->info.dtype, tensor->info.shape)) {
      fail(ErrorCode::kCorrupt, "{}: {} {}, expected {} {} from config.json", name, to_string(tensor->info.dtype),
           to_string(tensor->info.shape), to_string(expected.dtype), to_string(expected.shape));
    }
  });
}

}  // namespace trefoil
