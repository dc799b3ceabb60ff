// What this machine can do at most, measured: memory read speed and the rates of the instructions the kernels use. Bench
// figures are ratios to these, taken within the same second, because a shared machine's speed moves by a factor of two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/parallel.h"

namespace trefoil {

// Bytes a second over `bytes`, one sequential stream a thread, each thread a share of its own. Every byte is read once.
double read_rate(ThreadPool& pool, std::span<const std::byte> bytes);

enum class PeakOp {
  kFmaF32,   // 2 operations a lane
  kDotBf16,  // vdpbf16ps: 4 operations a lane
  kDotInt8,  // vpdpbusd: 8 operations a lane
};
const char* to_string(PeakOp op);

// Operations a second of all threads together, from registers; 0 where this machine lacks the instruction.
double peak_rate(ThreadPool& pool, PeakOp op);

}  // namespace trefoil
