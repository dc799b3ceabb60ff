#include "kernels/short_conv.h"

#include <algorithm>

#include "base/vectorize.h"
#include "kernels/elementary.h"

namespace trefoil {

TREFOIL_VECTORIZE void short_conv(std::span<const float* const> taps, std::span<const float> weight, Rounding rounding,
                                  std::span<float> out) noexcept {
  const size_t channels = out.size();
  std::fill(out.begin(), out.end(), 0.0f);
  for (size_t i = 0; i < taps.size(); ++i) {
    const float* raw = taps[i];
    const float* w = weight.data() + i * channels;
    for (size_t c = 0; c < channels; ++c) out[c] += w[c] * raw[c];
  }
  for (float& value : out) value = rounded(silu_f32(value), rounding);
}

}  // namespace trefoil
