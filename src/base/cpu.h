// Which instruction sets this machine runs, and the cap a user may put on them.
#pragma once

#include <span>
#include <string_view>

#include "trefoil/machine.h"  // set_isa_cap

namespace trefoil {

// In ascending order: a higher one implies the lower ones. kAvx512 is F, BW, VL and DQ; the two above add the dot products
// of bytes and of bf16.
enum class Isa { kScalar, kAvx2, kAvx512, kAvx512Vnni, kAvx512Bf16 };

const char* to_string(Isa isa);

// The best set this machine can run.
Isa detected_isa();
// The set in use: detected_isa(), or less after set_isa_cap().
Isa active_isa();

enum class CpuVendor { kOther, kAmd, kIntel };
CpuVendor cpu_vendor();

// One implementation of a kernel family. Families list theirs best first; the last one runs anywhere.
template <typename Fn>
struct Impl {
  Isa isa;
  Fn* run;
};

// The first implementation the active set can run.
template <typename Fn>
Fn* choose(std::span<const Impl<Fn>> impls) {
  for (const Impl<Fn>& impl : impls) {
    if (impl.isa <= active_isa()) return impl.run;
  }
  return impls.back().run;
}
template <typename Fn, size_t kCount>
Fn* choose(const Impl<Fn> (&impls)[kCount]) {
  return choose(std::span<const Impl<Fn>>(impls));
}

}  // namespace trefoil
