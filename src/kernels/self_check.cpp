#include "trefoil/self_check.h"

#include <cstring>
#include <vector>

#include "base/error.h"
#include "kernels/matmul.h"

namespace trefoil {
namespace {

// Sizes with a tail in every direction.
constexpr int64_t kTokens = 7, kRows = 21, kWidth = 203;

// Small fractions of both signs, the same on every machine.
std::vector<float> test_values(int64_t count, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    seed = seed * 1664525u + 1013904223u;  // Numerical Recipes' linear congruential generator
    value = static_cast<float>(static_cast<int32_t>(seed >> 8) - (1 << 23)) * 0x1p-23f;
  }
  return values;
}

}  // namespace

void check_matmul() {
  const std::vector<float> x = test_values(kTokens * kWidth, 1), w = test_values(kRows * kWidth, 2);
  const auto run = [&](MatmulFn* matmul) {
    std::vector<float> y(static_cast<size_t>(kTokens * kRows));
    matmul({x.data(), w.data(), y.data(), kTokens, kRows, kWidth, kWidth, kRows});
    return y;
  };
  const std::vector<float> expected = run(matmul_scalar);
  for (const Impl<MatmulFn>& impl : matmul_impls()) {
    if (impl.isa > detected_isa()) continue;
    const std::vector<float> found = run(impl.run);
    if (std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) != 0) {
      fail(ErrorCode::kUnsupported, "matmul for {} differs from the scalar one on this machine: use --isa scalar",
           to_string(impl.isa));
    }
  }
}

}  // namespace trefoil
