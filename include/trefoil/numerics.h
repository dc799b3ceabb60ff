// How the forward pass rounds. Part of the public interface.
#pragma once

namespace trefoil {

// kF32: nothing is rounded between operations. kBf16: every value is rounded to bf16 where the release rounds
// (docs/architecture.md, "Rounding points").
enum class Numerics { kF32, kBf16 };

// How products with packed weights (the routed experts) are computed. docs/kernels.md, "Modes".
enum class KernelMode {
  kReference,  // decoded as compressed-tensors does, q * scale rounded to bf16, then multiplied in f32: what goldens judge
  kExact,   // exact codes times bf16 activations, f32 sums, the scale applied to a group's sum: nothing else is rounded
  kFast16,  // activations as 16-bit fixed point in blocks of 64
  kFast8,   // activations as 8 bits in blocks of 64
};
const char* to_string(KernelMode mode);

// How everything but the routed experts lies in memory.
enum class TrunkForm {
  kBf16,  // as stored
  kInt8,  // rounded to 8 bits, one scale for 64 columns of a row; the router and the embedding stay as stored
};

}  // namespace trefoil
