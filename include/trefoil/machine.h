// The machine under the program, as every command sees it.
#pragma once

#include <string_view>

namespace trefoil {

// The number of CPUs this process may use (affinity mask and cgroup quota respected), at least 1.
int usable_cpus();

// Lowers the best instruction set kernels may use ("scalar", "avx2", "avx512"), for bisecting. Call before anything else.
// Error(kInvalidArgument) for an unknown name, Error(kUnsupported) when this machine cannot run it.
void set_isa_cap(std::string_view name);

}  // namespace trefoil
