#include "base/cpu.h"

#include <atomic>

#include "base/error.h"

namespace trefoil {
namespace {

Isa detect() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("fma")) {
    if (!__builtin_cpu_supports("avx512vnni")) return Isa::kAvx512;
    return __builtin_cpu_supports("avx512bf16") ? Isa::kAvx512Bf16 : Isa::kAvx512Vnni;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return Isa::kAvx2;
#endif
  return Isa::kScalar;
}

std::atomic<Isa>& cap() {
  static std::atomic<Isa> value{detected_isa()};
  return value;
}

}  // namespace

const char* to_string(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Vnni:
      return "avx512vnni";
    case Isa::kAvx512Bf16:
      return "avx512bf16";
  }
  return "unknown";
}

Isa detected_isa() {
  static const Isa isa = detect();
  return isa;
}

CpuVendor cpu_vendor() {
#if defined(__x86_64__)
  static const CpuVendor vendor = [] {
    __builtin_cpu_init();
    if (__builtin_cpu_is("intel")) return CpuVendor::kIntel;
    return __builtin_cpu_is("amd") ? CpuVendor::kAmd : CpuVendor::kOther;
  }();
  return vendor;
#else
  return CpuVendor::kOther;
#endif
}

Isa active_isa() {
  return cap().load(std::memory_order_relaxed);
}

void set_isa_cap(std::string_view name) {
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kAvx512Bf16}) {
    if (name != to_string(isa)) continue;
    if (isa > detected_isa())
      fail(ErrorCode::kUnsupported, "instruction set {} was asked for, this machine runs {}", name,
           to_string(detected_isa()));
    cap().store(isa, std::memory_order_relaxed);
    return;
  }
  fail(ErrorCode::kInvalidArgument,
       "unknown instruction set '{}' (known: scalar, avx2, avx512, avx512vnni, avx512bf16)", name);
}

}  // namespace trefoil
