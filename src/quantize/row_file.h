// Matrices on disk that are written and read by rows: the activations of a job, one row for each calibration token.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "checkpoint/file.h"
#include "quantize/ledger.h"

namespace trefoil {

// kRead: the file must be there, whole. kWrite: it is made with its full size when it is not there. kWriteThrough: the
// same, and what is written is on the disk when write() returns.
enum class RowAccess { kRead, kWrite, kWriteThrough };

// Rows of `row_bytes` bytes. Safe to use from several threads on different rows.
class RowFile {
 public:
  RowFile(const fs::path& folder, std::string name, int64_t rows, int64_t row_bytes, RowAccess access);

  int64_t rows() const { return rows_; }
  // Whole rows from `first` on.
  void read(int64_t first, MutableBytes out) const;
  // The same, and what was written where.
  WrittenRange write(int64_t first, Bytes bytes);

 private:
  std::string name_;
  int64_t rows_;
  int64_t row_bytes_;
  bool writes_through_;
  WorkFile file_;
};

// Rows of `width` floats, stored as bf16 where the numerics round every activation to it (nothing is lost), else as f32.
class ActivationFile {
 public:
  enum class Element { kBf16, kF32 };

  ActivationFile(const fs::path& folder, std::string name, int64_t rows, int64_t width, Element element,
                 RowAccess access);

  int64_t rows() const { return file_.rows(); }
  int64_t width() const { return width_; }
  // Rows [first, first + out.size() / width).
  void read(int64_t first, std::span<float> out) const;
  // Rows `row` in this order, [row.size(), width].
  void gather(std::span<const int64_t> row, std::span<float> out) const;
  // The values must be what their stored form gives back.
  WrittenRange write(int64_t first, std::span<const float> values);

 private:
  int64_t width_;
  Element element_;
  RowFile file_;
};

}  // namespace trefoil
