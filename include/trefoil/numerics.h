// How the forward pass rounds. Part of the public interface.
#pragma once

namespace trefoil {

// kF32: nothing is rounded between operations. kBf16: every value is rounded to bf16 where the release rounds
// (docs/architecture.md, "Rounding points").
enum class Numerics { kF32, kBf16 };

}  // namespace trefoil
