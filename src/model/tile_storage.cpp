#include "model/tile_storage.h"

namespace trefoil {
namespace {

class MemoryLinear : public LinearWeight {
 public:
  explicit MemoryLinear(const StoredMatrix& matrix)
      : LinearWeight(matrix.linear->out_features, matrix.linear->in_features),
        matrix_(matrix),
        format_(tile_format_of(*matrix.linear)) {}

  void decode_rows(int64_t row_begin, int64_t row_end, std::span<float> out) const override {
    decode_stored(matrix_, row_begin, row_end, out);
  }
  DirectForm direct() const override {
    if (!format_) return {};
    return {.kind = DirectForm::Kind::kCodes, .rows = {}, .tile_format = *format_, .codes = code_rows_of(matrix_)};
  }

 private:
  StoredMatrix matrix_;
  std::optional<TileFormat> format_;
};

}  // namespace

bool is_routed_expert(std::string_view name) {
  return name.find(".block_sparse_moe.experts.") != std::string_view::npos;
}

std::optional<TileFormat> tile_format_of(const StoredLinear& stored) {
  TileFormat format = TileFormat::kMxfp4;
  if (stored.format == LinearFormat::kPackedInt && stored.scale->info.dtype == DType::kBF16 &&
      (stored.num_bits == 3 || stored.num_bits == 4)) {
    format = stored.num_bits == 3 ? TileFormat::kInt3 : TileFormat::kInt4;
  } else if (stored.format != LinearFormat::kMxfp4) {
    return std::nullopt;
  }
  if (!tileable(format, stored.in_features, stored.group_size)) return std::nullopt;
  return format;
}

CodeRows code_rows_of(const StoredMatrix& matrix) {
  const StoredLinear& linear = *matrix.linear;
  return {.codes = matrix.packed.data(),
          .scale = matrix.scale.data(),
          .codes_stride = static_cast<int64_t>(linear.packed->info.size()) / linear.out_features,
          .cols = linear.in_features,
          .group_size = linear.group_size,
          .format = *tile_format_of(linear),
          .layout = linear.layout};
}

std::unique_ptr<LinearWeight> make_stored_linear(const StoredMatrix& matrix) {
  return std::make_unique<MemoryLinear>(matrix);
}

}  // namespace trefoil
