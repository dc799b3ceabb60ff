#include "quantize/row_file.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/sha256.h"
#include "tensor/bf16.h"

namespace trefoil {
namespace {

constexpr int64_t kPieceFloats = int64_t{1} << 20;

int64_t element_bytes(ActivationFile::Element element) {
  return element == ActivationFile::Element::kBf16 ? 2 : 4;
}

}  // namespace

RowFile::RowFile(const fs::path& folder, std::string name, int64_t rows, int64_t row_bytes, RowAccess access)
    : name_(std::move(name)),
      rows_(rows),
      row_bytes_(row_bytes),
      writes_through_(access == RowAccess::kWriteThrough),
      file_(folder / name_, static_cast<uint64_t>(rows * row_bytes),
            access == RowAccess::kRead ? WorkFile::Open::kExisting : WorkFile::Open::kMake) {}

void RowFile::read(int64_t first, MutableBytes out) const {
  file_.read_at(static_cast<uint64_t>(first * row_bytes_), out);
}

WrittenRange RowFile::write(int64_t first, Bytes bytes) {
  const auto offset = static_cast<uint64_t>(first * row_bytes_);
  file_.write_at(offset, bytes);
  if (writes_through_) file_.sync();
  return {name_, offset, bytes.size(), sha256_hex(bytes)};
}

ActivationFile::ActivationFile(const fs::path& folder, std::string name, int64_t rows, int64_t width, Element element,
                               RowAccess access)
    : width_(width), element_(element), file_(folder, std::move(name), rows, width * element_bytes(element), access) {}

void ActivationFile::read(int64_t first, std::span<float> out) const {
  if (element_ == Element::kF32) {
    file_.read(first, std::as_writable_bytes(out));
    return;
  }
  const int64_t rows = static_cast<int64_t>(out.size()) / width_;
  const int64_t step = std::max<int64_t>(1, kPieceFloats / width_);
  std::vector<uint16_t> stored(static_cast<size_t>(std::min(rows, step) * width_));
  for (int64_t row = 0; row < rows; row += step) {
    const auto count = static_cast<size_t>(std::min(step, rows - row) * width_);
    file_.read(first + row, std::as_writable_bytes(std::span(stored).first(count)));
    float* to = out.data() + row * width_;
    for (size_t i = 0; i < count; ++i) to[i] = bf16_to_f32(stored[i]);
  }
}

void ActivationFile::gather(std::span<const int64_t> row, std::span<float> out) const {
  TREFOIL_CHECK(static_cast<int64_t>(out.size()) == static_cast<int64_t>(row.size()) * width_);
  for (size_t begin = 0, end = 0; begin < row.size(); begin = end) {  // neighbours are read together
    for (end = begin + 1; end < row.size() && row[end] == row[end - 1] + 1;) ++end;
    const auto width = static_cast<size_t>(width_);
    read(row[begin], out.subspan(begin * width, (end - begin) * width));
  }
}

WrittenRange ActivationFile::write(int64_t first, std::span<const float> values) {
  if (element_ == Element::kF32) return file_.write(first, std::as_bytes(values));
  std::vector<uint16_t> stored(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    stored[i] = f32_to_bf16(values[i]);
    TREFOIL_CHECK(bf16_to_f32(stored[i]) == values[i]);  // bf16 numerics round every activation that is kept
  }
  return file_.write(first, std::as_bytes(std::span<const uint16_t>(stored)));
}

}  // namespace trefoil
