// Where the time of the solver goes: CPU seconds and arithmetic of each phase, summed over the experts that took part.
//
// Seconds are those of the calling thread's CPU clock: an expert is one thread's work, so sums over experts mean the same
// for any number of threads, and other programs on the machine count little. Operations are the multiplications and
// additions of the formulas, counted apart; what is not a product of matrices or of vectors (decoding, copies, roundings)
// counts none. Times go into quantization_report.json and into nothing else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace trefoil {

enum class Phase {
  kDecode,   // MXFP4 to f32
  kGather,   // the expert's tokens out of the layer's
  kForward,  // w1, w3, SiTU and w2 on its tokens
  kMoments,  // H
  kCross,    // C of the mismatch target
  kTarget,   // W* from C
  kFactor,   // damping, order, N D N^T
  kScales,   // scale search
  kSweep,    // GPTQ, or plain rounding
  kRefine,   // refinement rounds
  kLosses,   // what is reported and decided by
  kEncode,   // packing
};
constexpr std::array<Phase, 12> kPhases = {Phase::kDecode, Phase::kGather, Phase::kForward, Phase::kMoments,
                                           Phase::kCross,  Phase::kTarget, Phase::kFactor,  Phase::kScales,
                                           Phase::kSweep,  Phase::kRefine, Phase::kLosses,  Phase::kEncode};
const char* to_string(Phase phase);  // "decode", "gather", ...

struct PhaseCost {
  double seconds = 0;
  double flops = 0;
};

class PhaseTimes {
 public:
  void add(Phase phase, const PhaseCost& cost);
  PhaseTimes& operator+=(const PhaseTimes& other);
  const PhaseCost& operator[](Phase phase) const { return cost_[static_cast<size_t>(phase)]; }
  PhaseCost total() const;

 private:
  std::array<PhaseCost, kPhases.size()> cost_ = {};
};

// An expert's, or many experts': w1 and w3 share most phases and are counted together.
struct ExpertTimes {
  PhaseTimes gate_up;
  PhaseTimes down;
  ExpertTimes& operator+=(const ExpertTimes& other);
};

// CPU seconds of the calling thread since an arbitrary moment.
double thread_seconds();

// Adds the time from its construction to its destruction, on one thread.
class PhaseTimer {
 public:
  PhaseTimer(PhaseTimes& times, Phase phase, double flops = 0)
      : times_(times), phase_(phase), flops_(flops), start_(thread_seconds()) {}
  ~PhaseTimer() { times_.add(phase_, {thread_seconds() - start_, flops_}); }
  PhaseTimer(const PhaseTimer&) = delete;
  PhaseTimer& operator=(const PhaseTimer&) = delete;
  void count(double flops) { flops_ += flops; }

 private:
  PhaseTimes& times_;
  Phase phase_;
  double flops_;
  double start_;
};

// 2 m n k, the operations of a matrix product.
inline double product_flops(int64_t m, int64_t n, int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

}  // namespace trefoil
