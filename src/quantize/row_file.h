// Matrices on disk that are written and read by rows: the activations of a job, one row for each calibration token.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "checkpoint/file.h"
#include "quantize/ledger.h"

namespace trefoil {

// Rows of `row_bytes` bytes. Safe to use from several threads on different rows.
class RowFile {
 public:
  // FOLDER/NAME, made with its full size when it is not there.
  RowFile(const fs::path& folder, std::string name, int64_t rows, int64_t row_bytes);

  int64_t rows() const { return rows_; }
  // Whole rows from `first` on.
  void read(int64_t first, MutableBytes out) const;
  // The same, and what was written where.
  WrittenRange write(int64_t first, Bytes bytes);
  void sync() { file_.sync(); }

 private:
  std::string name_;
  int64_t rows_;
  int64_t row_bytes_;
  WorkFile file_;
};

// Rows of `width` floats, stored as bf16 where the numerics round every activation to it (nothing is lost), else as f32.
class ActivationFile {
 public:
  enum class Element { kBf16, kF32 };

  ActivationFile(const fs::path& folder, std::string name, int64_t rows, int64_t width, Element element);

  int64_t rows() const { return file_.rows(); }
  int64_t width() const { return width_; }
  // Rows [first, first + out.size() / width).
  void read(int64_t first, std::span<float> out) const;
  // Rows `row` in this order, [row.size(), width].
  void gather(std::span<const int64_t> row, std::span<float> out) const;
  // Error(kCorrupt) when a value is not what its stored form gives back.
  WrittenRange write(int64_t first, std::span<const float> values);
  void sync() { file_.sync(); }

 private:
  int64_t width_;
  Element element_;
  RowFile file_;
};

}  // namespace trefoil
