// Picks the next token from a row of logits. The steps and their order: include/trefoil/generate.h, SamplingOptions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/splitmix64.h"
#include "trefoil/generate.h"

namespace trefoil {

class Sampler {
 public:
  // Error(kInvalidArgument) naming the option: temperature not finite or negative, top_k negative, top_p outside (0,
  // 1], min_p outside [0, 1].
  explicit Sampler(const SamplingOptions& options);

  // A NaN or +infinity is an Error(kCorrupt), and so is a row of nothing but -infinity (a masked token, never picked).
  // Uses one number of the generator, none at temperature 0.
  int32_t sample(std::span<const float> logits);
  // From here on as if `position` tokens had been drawn.
  void seek(int64_t position);

 private:
  struct Candidate {
    int32_t id = 0;
    double weight = 0;  // proportional to the probability; 1 for the most probable
  };
  void keep_most_probable(std::span<const float> logits);
  void cut_top_p();
  void cut_min_p();
  int32_t draw();

  SamplingOptions options_;
  SplitMix64 generator_;
  std::vector<Candidate> candidates_;  // kept between calls for its memory
};

}  // namespace trefoil
