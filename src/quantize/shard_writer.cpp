#include "quantize/shard_writer.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "base/error.h"
#include "tensor/finite.h"

namespace trefoil {
namespace {

constexpr uint64_t kCopyBlock = 16u << 20;

template <typename T>
std::vector<std::byte> bytes_of(std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  return {bytes.begin(), bytes.end()};
}

void copy_tensor(const Checkpoint& source, const TensorRef& tensor, SafetensorsWriter& out) {
  std::vector<std::byte> block;
  uint64_t offset = 0;
  do {
    block.resize(std::min(kCopyBlock, tensor.info.size() - offset));
    source.read(tensor, offset, block);
    if (const auto bad = first_non_finite(tensor.info.dtype, block)) {
      const int64_t element = static_cast<int64_t>(offset) / element_size(tensor.info.dtype) + *bad;
      fail(ErrorCode::kCorrupt, "{}: {}: infinity or NaN at element {}", source.shards()[tensor.shard],
           tensor.info.name, element);
    }
    out.write(tensor.info.name, block);
    offset += block.size();
  } while (offset < tensor.info.size());
}

}  // namespace

EncodedLinear encode(const QuantizedMatrix& matrix, PackedLayout layout) {
  const auto words = static_cast<size_t>(packed_words(matrix.num_bits, matrix.cols, layout));
  const auto rows = static_cast<size_t>(matrix.rows);
  const auto cols = static_cast<size_t>(matrix.cols);
  std::vector<uint32_t> packed(rows * words);
  for (size_t row = 0; row < rows; ++row) {
    pack_row(matrix.num_bits, layout, std::span(matrix.codes).subspan(row * cols, cols),
             std::span(packed).subspan(row * words, words));
  }
  const int64_t shape[2] = {matrix.rows, matrix.cols};
  return {bytes_of(std::span<const uint32_t>(packed)), bytes_of(std::span<const uint16_t>(matrix.scale)),
          bytes_of(std::span<const int64_t>(shape))};
}

ShardWriter::ShardWriter(const Checkpoint& source, std::vector<ShardPlan> plans, PackedLayout layout, fs::path folder)
    : source_(source), plans_(std::move(plans)), layout_(layout), folder_(std::move(folder)) {
  for (const ShardPlan& plan : plans_) layers_missing_.push_back(plan.layers.size());
}

void ShardWriter::add(const std::string& module, EncodedLinear encoded) {
  made_[module + ".weight_packed"] = std::move(encoded.packed);
  made_[module + ".weight_scale"] = std::move(encoded.scale);
  made_[module + ".weight_shape"] = std::move(encoded.shape);
}

void ShardWriter::layer_done(int64_t layer) {
  for (size_t i = 0; i < plans_.size(); ++i) {
    const std::vector<int64_t>& layers = plans_[i].layers;
    if (std::find(layers.begin(), layers.end(), layer) == layers.end()) continue;
    if (--layers_missing_[i] == 0) write(plans_[i]);
  }
}

void ShardWriter::write_untouched() {
  for (const ShardPlan& plan : plans_) {
    if (plan.layers.empty()) write(plan);
  }
}

void ShardWriter::write(const ShardPlan& plan) {
  std::vector<TensorPlan> tensors;
  for (const ShardTensor& tensor : plan.tensors) tensors.push_back(tensor.plan);
  SafetensorsWriter out(folder_ / plan.file, std::move(tensors), data_alignment(layout_));
  for (const ShardTensor& tensor : plan.tensors) {
    if (tensor.copied != nullptr) {
      copy_tensor(source_, *tensor.copied, out);
      continue;
    }
    const auto made = made_.find(tensor.plan.name);
    TREFOIL_CHECK(made != made_.end());  // the walk adds every expert of a layer before layer_done
    out.write(tensor.plan.name, made->second);
    made_.erase(made);
  }
  out.commit();
}

}  // namespace trefoil
