// A panel: some rows of a matrix under work, transposed to [cols, rows] so that the solver's recurrences over columns
// vectorise over rows (lanes.h).
#pragma once

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "quantize/lanes.h"

namespace trefoil {

struct Panel {
  int64_t first = 0;                             // row of the matrix
  int64_t count = 0;                             // rows of the matrix
  int64_t rows = 0;                              // the same rounded up to lanes: columns of the arrays below
  std::vector<float> target, mask, code, error;  // [cols, rows]; the mask may be empty
  std::vector<float> scale;                      // [groups, rows]

  // Takes the place of the previous panel, whose memory it keeps. Everything but the mask is resized and unspecified.
  void start(int64_t first_row, int64_t num_rows, int64_t cols, int64_t groups) {
    first = first_row;
    count = num_rows;
    rows = round_up(num_rows, lanes::kLanes);
    for (std::vector<float>* values : {&target, &code, &error}) values->resize(static_cast<size_t>(cols * rows));
    scale.resize(static_cast<size_t>(groups * rows));
  }
};

// to [cols, panel_rows] from `count` rows of a row-major [., cols] matrix; missing rows become `fill`.
inline void rows_to_panel(const float* from, int64_t cols, int64_t count, int64_t panel_rows, float fill, float* to) {
  for (int64_t row = 0; row < panel_rows; row += lanes::kLanes) {  // a strip of lanes is written whole
    for (int64_t col = 0; col < cols; ++col) {
      for (int64_t r = row; r < row + lanes::kLanes; ++r)
        to[col * panel_rows + r] = r < count ? from[r * cols + col] : fill;
    }
  }
}

// The inverse, without the missing rows.
inline void panel_to_rows(const float* from, int64_t cols, int64_t count, int64_t panel_rows, float* to) {
  for (int64_t row = 0; row < count; row += lanes::kLanes) {
    const int64_t end = row + lanes::kLanes < count ? row + lanes::kLanes : count;
    for (int64_t col = 0; col < cols; ++col) {
      for (int64_t r = row; r < end; ++r) to[r * cols + col] = from[col * panel_rows + r];
    }
  }
}

}  // namespace trefoil
