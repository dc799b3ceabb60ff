#include "quantize/staged_shards.h"

#include <algorithm>
#include <set>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "base/sha256.h"
#include "tensor/finite.h"

namespace trefoil {
namespace {

constexpr uint64_t kCopyBlock = 16u << 20;

void check_finite(const Checkpoint& source, const TensorRef& tensor, uint64_t offset, Bytes block) {
  const auto bad = first_non_finite(tensor.info.dtype, block);
  if (!bad) return;
  const int64_t element = static_cast<int64_t>(offset) / element_size(tensor.info.dtype) + *bad;
  fail(ErrorCode::kCorrupt, "{}: {}: infinity or NaN at element {}", source.shards()[tensor.shard], tensor.info.name,
       element);
}

// A quantized Linear in a staged shard.
class StagedLinear : public LinearWeight {
 public:
  StagedLinear(const SafetensorsStage& stage, const StoredLinear& source, const ExpertEncoding& encoding)
      : LinearWeight(source.out_features, source.in_features),
        stage_(stage),
        packed_(source.module + ".weight_packed"),
        scale_(source.module + ".weight_scale"),
        encoding_(encoding) {}

  void decode_rows(int64_t row_begin, int64_t row_end, std::span<float> out) const override {
    const int64_t groups = in_features() / encoding_.group_size;
    const int64_t words = packed_words(encoding_.num_bits, in_features(), encoding_.layout);
    QuantizedMatrix rows{row_end - row_begin, in_features(), encoding_.group_size, encoding_.num_bits, {}, {}};
    std::vector<uint32_t> packed(static_cast<size_t>(rows.rows * words));
    rows.scale.resize(static_cast<size_t>(rows.rows * groups));
    rows.codes.resize(static_cast<size_t>(rows.rows * rows.cols));
    stage_.read(packed_, static_cast<uint64_t>(row_begin * words * 4), std::as_writable_bytes(std::span(packed)));
    stage_.read(scale_, static_cast<uint64_t>(row_begin * groups * 2), std::as_writable_bytes(std::span(rows.scale)));
    for (int64_t row = 0; row < rows.rows; ++row) {
      unpack_row(encoding_.num_bits, encoding_.layout,
                 std::span(packed).subspan(static_cast<size_t>(row * words), static_cast<size_t>(words)),
                 std::span(rows.codes).subspan(static_cast<size_t>(row * rows.cols), static_cast<size_t>(rows.cols)));
    }
    const std::vector<float> values = dequantize(rows);
    std::copy(values.begin(), values.end(), out.begin());
  }

 private:
  const SafetensorsStage& stage_;
  std::string packed_, scale_;
  ExpertEncoding encoding_;
};

}  // namespace

StagedShards::StagedShards(const Checkpoint& source, const std::vector<ShardPlan>& plans,
                           const ExpertEncoding& encoding, fs::path folder)
    : source_(source), plans_(plans), encoding_(encoding), folder_(std::move(folder)) {
  for (const ShardPlan& plan : plans_) {
    std::vector<TensorPlan> tensors;
    for (const ShardTensor& tensor : plan.tensors) {
      tensors.push_back(tensor.plan);
      if (tensor.copied == nullptr) shard_of_.emplace(tensor.plan.name, stages_.size());
    }
    make_folder((folder_ / plan.file).parent_path());
    stages_.push_back(
        std::make_unique<SafetensorsStage>(folder_ / plan.file, std::move(tensors), data_alignment(encoding_.layout)));
  }
}

SafetensorsStage& StagedShards::stage_of(const std::string& tensor) const {
  const auto at = shard_of_.find(tensor);
  TREFOIL_CHECK(at != shard_of_.end());
  return *stages_[at->second];
}

WrittenRange StagedShards::write_range(const std::string& tensor, uint64_t offset, Bytes bytes) {
  SafetensorsStage& stage = stage_of(tensor);
  stage.write(tensor, offset, bytes);
  return {stage.path().lexically_relative(folder_).string(), stage.offset_of(tensor) + offset, bytes.size(),
          sha256_hex(bytes)};
}

std::vector<WrittenRange> StagedShards::write(const std::string& module, const EncodedLinear& linear) {
  return {write_range(module + ".weight_packed", 0, linear.packed),
          write_range(module + ".weight_scale", 0, linear.scale),
          write_range(module + ".weight_shape", 0, linear.shape)};
}

std::vector<WrittenRange> StagedShards::copy_unchanged(const ShardPlan& plan) {
  const auto at = std::find_if(plans_.begin(), plans_.end(), [&](const ShardPlan& p) { return p.file == plan.file; });
  TREFOIL_CHECK(at != plans_.end());
  SafetensorsStage& stage = *stages_[static_cast<size_t>(at - plans_.begin())];
  std::vector<WrittenRange> ranges;
  std::vector<std::byte> block;
  for (const ShardTensor& tensor : plan.tensors) {
    if (tensor.copied == nullptr) continue;
    Sha256 sum;
    const uint64_t size = tensor.copied->info.size();
    for (uint64_t offset = 0; offset < size; offset += block.size()) {
      block.resize(std::min(kCopyBlock, size - offset));
      source_.read(*tensor.copied, offset, block);
      check_finite(source_, *tensor.copied, offset, block);
      stage.write(tensor.plan.name, offset, block);
      sum.update(block);
    }
    ranges.push_back({plan.file, stage.offset_of(tensor.plan.name), size, sum.hex()});
  }
  return ranges;
}

void StagedShards::sync(const std::string& shard_file) {
  for (size_t i = 0; i < plans_.size(); ++i) {
    if (plans_[i].file == shard_file) stages_[i]->sync();
  }
}

void StagedShards::sync(const std::vector<WrittenRange>& ranges) {
  std::set<std::string> files;
  for (const WrittenRange& range : ranges) files.insert(range.file);
  for (const std::string& file : files) sync(file);
}

std::vector<ExpertLinears> StagedShards::experts(const MoeLayer& layer) const {
  std::vector<ExpertLinears> experts;
  const auto linear = [&](const RoutedExpert& expert, ExpertPart part) {
    const StoredLinear& source = expert.part(part);
    return std::make_unique<StagedLinear>(stage_of(source.module + ".weight_packed"), source, encoding_);
  };
  for (const RoutedExpert& expert : layer.experts) {
    experts.push_back(
        {linear(expert, ExpertPart::kW1), linear(expert, ExpertPart::kW2), linear(expert, ExpertPart::kW3)});
  }
  return experts;
}

}  // namespace trefoil
