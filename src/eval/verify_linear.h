// What one pass over an expert Linear's stored values finds out. Used by verify_values.cpp.
#pragma once

#include <array>
#include <string>

#include "eval/verify_experts.h"

namespace trefoil {

// Counts, and where the first of its kind is.
struct Tally {
  uint64_t count = 0;
  std::string first;  // "row 3 group 7: nan"
  // Counts one more; `describe` is called for the first only.
  template <typename Describe>
  void add(const Describe& describe) {
    if (count++ == 0) first = describe();
  }
};

struct LinearValues {
  bool is_read = false;
  std::string read_error;

  uint64_t num_scales = 0;
  Tally bad_scales;  // zero or not finite
  uint64_t negative_scales = 0;
  uint64_t subnormal_scales = 0;
  uint64_t eps_scales = 0;                // +-2^-7, what compressed-tensors puts where a group's scale would be zero
  Tally bad_pads;                         // rows
  std::array<uint64_t, 256> histogram{};  // of stored codes
  int num_codes = 0;                      // different ones

  bool is_decoded = false;  // both paths ran
  std::string decode_error;
  Tally mismatches;

  bool is_compared = false;  // with the source
  std::string source_error;
  bool is_source_constant = true;  // one value within every group of columns
  double error_norm2 = 0;          // sum of (W - W_source)^2
  double source_norm2 = 0;         // sum of W_source^2
  double relative_error() const;   // 0 for two zero matrices, infinite when only the source is zero
};

struct LinearReader {
  const FolderScan& scan;
  const Checkpoint* checkpoint;  // null: no second path
  const Checkpoint* source;      // null: no comparison
  int num_bits_hint;

  // Never throws for what is stored: errors of reading and decoding go into the result. `linear` has a storage.
  LinearValues read(const ExpertLinear& linear) const;
};

}  // namespace trefoil
