// Writes what Trefoil's codecs say, for comparison with the compressed-tensors package
// (compressed_tensors_reference.py).
//
//   trefoil_reference_data tables OUT.safetensors            products, MXFP4 values and packed rows, exhaustively or at
//   random trefoil_reference_data make MODEL OUT BITS LAYOUT        an int checkpoint of MODEL by rounding to nearest,
//   group 64 trefoil_reference_data decode CHECKPOINT OUT.safetensors every packed Linear as bf16, named MODULE.weight
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/linear_storage.h"
#include "support/packed_checkpoint.h"
#include "tensor/bf16.h"
#include "tensor/mxfp4.h"
#include "tensor/packed_int.h"

namespace trefoil {
namespace {

// Tensors gathered in memory and written at the end.
class TensorFile {
 public:
  template <typename T>
  void add(const std::string& name, DType dtype, const Shape& shape, const std::vector<T>& values) {
    plan_.push_back({name, dtype, shape});
    const Bytes bytes = std::as_bytes(std::span(values));
    data_.emplace_back(bytes.begin(), bytes.end());
  }

  void write(const fs::path& path) const {
    SafetensorsWriter writer(path, plan_);
    for (size_t i = 0; i < plan_.size(); ++i) writer.write(plan_[i].name, data_[i]);
    writer.commit();
  }

 private:
  std::vector<TensorPlan> plan_;
  std::vector<std::vector<std::byte>> data_;
};

// bf16(q * scale) for every finite scale, both signs, and every q of 8 bits.
void add_products(TensorFile& file) {
  std::vector<uint16_t> scales;
  std::vector<uint16_t> products;
  for (uint32_t scale = 0; scale < 0x10000; ++scale) {
    if ((scale & 0x7FFF) >= 0x7F80) continue;
    scales.push_back(static_cast<uint16_t>(scale));
    for (int q = -128; q < 128; ++q) products.push_back(dequantize_bf16(q, scales.back()));
  }
  const auto count = static_cast<int64_t>(scales.size());
  file.add("product.scale", DType::kBF16, {count, 1}, scales);
  file.add("product.weight", DType::kBF16, {count, 256}, products);
}

// Both nibbles of every byte under every E8M0 scale that keeps them finite, one scale a row of 512 columns.
void add_mxfp4(TensorFile& file) {
  constexpr int64_t kCols = 512;
  std::vector<uint8_t> packed;
  std::vector<uint8_t> scales;
  std::vector<uint16_t> weights;
  std::vector<uint8_t> row(256);
  for (size_t byte = 0; byte < row.size(); ++byte) row[byte] = static_cast<uint8_t>(byte);
  std::vector<float> decoded(kCols);
  int64_t rows = 0;
  for (int e = 0; e < 255; ++e) {
    const std::vector<uint8_t> scale(kCols / kMxfp4GroupSize, static_cast<uint8_t>(e));
    if (!mxfp4_decode_row(row, scale, decoded)) continue;
    packed.insert(packed.end(), row.begin(), row.end());
    scales.insert(scales.end(), scale.begin(), scale.end());
    for (const float value : decoded) weights.push_back(f32_to_bf16(value));
    ++rows;
  }
  file.add("mxfp4.weight_packed", DType::kU8, {rows, kCols / 2}, packed);
  file.add("mxfp4.weight_scale", DType::kU8, {rows, kCols / kMxfp4GroupSize}, scales);
  file.add("mxfp4.weight", DType::kBF16, {rows, kCols}, weights);
}

// Random codes of every width from 1 to 130 columns, packed in both layouts.
void add_rows(TensorFile& file) {
  constexpr int64_t kRows = 4;
  std::mt19937 random(20260801);
  for (const int bits : {2, 3, 4, 8}) {
    for (int64_t cols = 1; cols <= 130; ++cols) {
      std::vector<int8_t> codes(static_cast<size_t>(kRows * cols));
      for (int8_t& code : codes)
        code = static_cast<int8_t>(static_cast<int>(random() >> (32 - bits)) - (1 << (bits - 1)));
      const std::string name = fmt::format("rows.{}.{}.", bits, cols);
      file.add(name + "codes", DType::kI8, {kRows, cols}, codes);
      for (const PackedLayout layout : {PackedLayout::kPadded, PackedLayout::kDense}) {
        const int64_t width = packed_words(bits, cols, layout);
        std::vector<uint32_t> words(static_cast<size_t>(kRows * width));
        for (int64_t r = 0; r < kRows; ++r) {
          pack_row(bits, layout, std::span(codes).subspan(static_cast<size_t>(r * cols), static_cast<size_t>(cols)),
                   std::span(words).subspan(static_cast<size_t>(r * width), static_cast<size_t>(width)));
        }
        file.add(name + to_string(layout), DType::kI32, {kRows, width}, words);
      }
    }
  }
}

void write_tables(const fs::path& out) {
  TensorFile file;
  add_products(file);
  add_mxfp4(file);
  add_rows(file);
  file.write(out);
}

void write_decoded(const fs::path& folder, const fs::path& out) {
  constexpr std::string_view kPacked = ".weight_packed";
  const Checkpoint checkpoint = Checkpoint::open(folder);
  TensorFile file;
  for (const TensorRef& tensor : checkpoint.tensors()) {
    if (!tensor.info.name.ends_with(kPacked)) continue;
    const StoredLinear linear =
        resolve_linear(checkpoint, tensor.info.name.substr(0, tensor.info.name.size() - kPacked.size()));
    std::vector<float> weights(static_cast<size_t>(linear.out_features * linear.in_features));
    decode_linear(checkpoint, linear, 0, linear.out_features, weights);
    std::vector<uint16_t> bits;
    for (const float weight : weights) {
      if (round_to_bf16(weight) != weight) fail(ErrorCode::kCorrupt, "{}: a value is not a bf16 number", linear.module);
      bits.push_back(f32_to_bf16(weight));
    }
    file.add(linear.module + ".weight", DType::kBF16, {linear.out_features, linear.in_features}, bits);
  }
  file.write(out);
}

void make_checkpoint(const fs::path& model, const fs::path& out, int bits, const std::string& layout) {
  PackQuantizedSpec spec;
  spec.num_bits = bits;
  spec.group_size = 64;
  spec.layout = layout == "padded" ? PackedLayout::kPadded : PackedLayout::kDense;
  spec.actorder = "static";
  testing::write_rtn_checkpoint(model, out, spec);
}

int run(const std::vector<std::string>& args) {
  if (args.size() == 2 && args[0] == "tables") {
    write_tables(args[1]);
  } else if (args.size() == 5 && args[0] == "make") {
    make_checkpoint(args[1], args[2], std::atoi(args[3].c_str()), args[4]);
  } else if (args.size() == 3 && args[0] == "decode") {
    write_decoded(args[1], args[2]);
  } else {
    std::fprintf(stderr, "usage: tables OUT | make MODEL OUT BITS padded|dense | decode CHECKPOINT OUT\n");
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace trefoil

int main(int argc, char** argv) {
  try {
    return trefoil::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trefoil_reference_data: %s\n", error.what());
    return 1;
  }
}
