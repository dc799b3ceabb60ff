#include "bench/ceilings.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/bytes.h"
#include "base/cpu.h"
#include "base/stopwatch.h"
#include "bench/peak_loops_impl.h"

namespace trefoil {
namespace {

constexpr int64_t kReadStep = 512;

float read_bytes(const std::byte* bytes, int64_t size) {
#if defined(__x86_64__)
  if (active_isa() >= Isa::kAvx512) return read_loop_avx512(bytes, size);
  if (active_isa() >= Isa::kAvx2) return read_loop_avx2(bytes, size);
#endif
  uint64_t sum = 0;
  for (int64_t at = 0; at < size; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, 8);
    sum ^= word;
  }
  return static_cast<float>(sum);
}

// Where results go, so that no loop is left out as useless.
std::atomic<float> sink;

struct Loop {
  float (*run)(int64_t rounds) noexcept;
  double operations;  // of a round
};

Loop loop_of(PeakOp op) {
#if defined(__x86_64__)
  switch (op) {
    case PeakOp::kFmaF32:
      if (active_isa() >= Isa::kAvx512) return {fma_loop_avx512, 2.0 * 16 * kPeakChains};
      if (active_isa() >= Isa::kAvx2) return {fma_loop_avx2, 2.0 * 8 * kPeakChains};
      break;
    case PeakOp::kDotBf16:
      if (active_isa() >= Isa::kAvx512Bf16) return {dot_bf16_loop_avx512bf16, 4.0 * 16 * kPeakChains};
      break;
    case PeakOp::kDotInt8:
      if (active_isa() >= Isa::kAvx512Vnni) return {dot_int8_loop_avx512vnni, 8.0 * 16 * kPeakChains};
      break;
  }
#endif
  return {nullptr, 0};
}

}  // namespace

double read_rate(ThreadPool& pool, std::span<const std::byte> bytes) {
  const int64_t threads = pool.num_threads();
  const int64_t share = static_cast<int64_t>(bytes.size()) / threads / kReadStep * kReadStep;
  const Stopwatch time;
  pool.parallel_for(threads, [&](int64_t i) { sink = read_bytes(bytes.data() + i * share, share); });
  return static_cast<double>(share * threads) / time.seconds();
}

const char* to_string(PeakOp op) {
  switch (op) {
    case PeakOp::kFmaF32:
      return "f32 FMA";
    case PeakOp::kDotBf16:
      return "bf16 dot product";
    case PeakOp::kDotInt8:
      return "int8 dot product";
  }
  return "?";
}

double peak_rate(ThreadPool& pool, PeakOp op) {
  const Loop loop = loop_of(op);
  if (loop.run == nullptr) return 0;
  constexpr int64_t kRounds = 1'000'000;
  const Stopwatch time;
  pool.parallel_for(pool.num_threads(), [&](int64_t) { sink = loop.run(kRounds); });
  return loop.operations * static_cast<double>(kRounds) * pool.num_threads() / time.seconds();
}

}  // namespace trefoil
