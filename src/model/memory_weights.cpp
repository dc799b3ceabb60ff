#include "model/memory_weights.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "model/weight_shape.h"

namespace trefoil {
namespace {

class MemoryLinear : public LinearWeight {
 public:
  MemoryLinear(int64_t out_features, int64_t in_features, std::shared_ptr<const std::vector<float>> values)
      : LinearWeight(out_features, in_features), values_(std::move(values)) {}

  void decode_rows(int64_t row_begin, int64_t row_end, std::span<float> out) const override {
    TREFOIL_CHECK(row_begin >= 0 && row_begin <= row_end && row_end <= out_features());
    const auto begin = values_->begin() + row_begin * in_features();
    std::copy(begin, begin + (row_end - row_begin) * in_features(), out.begin());
  }

 private:
  std::shared_ptr<const std::vector<float>> values_;
};

}  // namespace

void MemoryWeights::set(const std::string& name, const Shape& shape, std::vector<float> values) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  TREFOIL_CHECK(static_cast<int64_t>(values.size()) == count);
  tensors_[name] = {shape, std::make_shared<std::vector<float>>(std::move(values))};
}

std::vector<float>& MemoryWeights::at(const std::string& name) {
  return *find(name).values;
}

const MemoryWeights::Tensor& MemoryWeights::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) fail(ErrorCode::kNotFound, "{}: no such tensor", name);
  return found->second;
}

std::unique_ptr<LinearWeight> MemoryWeights::linear(std::string_view module, int64_t out_features,
                                                    int64_t in_features) const {
  const std::string name = std::string(module) + ".weight";
  const Tensor& tensor = find(name);
  require_shape(name, tensor.shape, {out_features, in_features});
  return std::make_unique<MemoryLinear>(tensor.shape[0], tensor.shape[1], tensor.values);
}

std::vector<float> MemoryWeights::vector(std::string_view name, const Shape& shape) const {
  const Tensor& tensor = find(name);
  require_shape(name, tensor.shape, shape);
  return *tensor.values;
}

}  // namespace trefoil
