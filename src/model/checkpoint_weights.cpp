#include "model/checkpoint_weights.h"

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/linear_storage.h"
#include "model/tile_storage.h"
#include "model/weight_shape.h"
#include "tensor/bf16.h"
#include "tensor/float16.h"

namespace trefoil {
namespace {

constexpr std::string_view kReleasePrefix = "language_model.";

class CheckpointLinear : public LinearWeight {
 public:
  CheckpointLinear(std::shared_ptr<const Checkpoint> checkpoint, StoredLinear stored)
      : LinearWeight(stored.out_features, stored.in_features),
        checkpoint_(std::move(checkpoint)),
        stored_(std::move(stored)) {
    if (checkpoint_->is_mapped() && tile_format_of(stored_)) {
      codes_ = code_rows_of({.linear = &stored_,
                             .weight = {},
                             .packed = checkpoint_->view(*stored_.packed).data,
                             .scale = checkpoint_->view(*stored_.scale).data});
    }
  }

  void decode_rows(int64_t row_begin, int64_t row_end, std::span<float> out) const override {
    decode_linear(*checkpoint_, stored_, row_begin, row_end, out);
  }

  // Packed codes in a mapping are multiplied where they lie; other modes of access have no bytes to show.
  DirectForm direct() const override {
    if (!codes_) return {};
    return {.kind = DirectForm::Kind::kCodes, .rows = {}, .tile_format = codes_->format, .codes = *codes_};
  }

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
  StoredLinear stored_;
  std::optional<CodeRows> codes_;
};

float element(const std::byte* data, DType dtype, size_t i) {
  switch (dtype) {
    case DType::kBF16:
      return bf16_to_f32(load<uint16_t>(data + 2 * i));
    case DType::kF16:
      return f16_to_f32(load<uint16_t>(data + 2 * i));
    default:
      return load<float>(data + 4 * i);
  }
}

}  // namespace

CheckpointWeights::CheckpointWeights(std::shared_ptr<const Checkpoint> checkpoint)
    : checkpoint_(std::move(checkpoint)) {
  constexpr std::string_view kEmbedding = "model.embed_tokens.weight";
  if (checkpoint_->find(std::string(kReleasePrefix) + std::string(kEmbedding)) != nullptr) {
    prefix_ = kReleasePrefix;
  } else if (checkpoint_->find(kEmbedding) == nullptr) {
    fail(ErrorCode::kNotFound, "{}: no tensor {}{}, with or without the prefix: not a Kimi-K3 text model",
         checkpoint_->folder().string(), kReleasePrefix, kEmbedding);
  }
}

std::unique_ptr<LinearWeight> CheckpointWeights::linear(std::string_view module, int64_t out_features,
                                                        int64_t in_features) const {
  StoredLinear stored = resolve_linear(*checkpoint_, prefix_ + std::string(module));
  require_shape(stored.module, {stored.out_features, stored.in_features}, {out_features, in_features});
  return std::make_unique<CheckpointLinear>(checkpoint_, std::move(stored));
}

std::vector<float> CheckpointWeights::vector(std::string_view name, const Shape& shape) const {
  const TensorRef& tensor = checkpoint_->at(prefix_ + std::string(name));
  const TensorInfo& info = tensor.info;
  if (info.dtype != DType::kBF16 && info.dtype != DType::kF16 && info.dtype != DType::kF32) {
    fail(ErrorCode::kCorrupt, "{}: dtype {}, expected BF16, F16 or F32", info.name, to_string(info.dtype));
  }
  require_shape(info.name, info.shape, shape);
  const std::vector<std::byte> bytes = checkpoint_->read_all(tensor);
  std::vector<float> values(bytes.size() / static_cast<size_t>(element_size(info.dtype)));
  for (size_t i = 0; i < values.size(); ++i) values[i] = element(bytes.data(), info.dtype, i);
  return values;
}

}  // namespace trefoil
