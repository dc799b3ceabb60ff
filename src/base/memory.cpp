#include "base/memory.h"

#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace trefoil {

void return_freed_memory() {
#ifdef __GLIBC__
  // Setting a threshold also stops the C library from raising it as large blocks are freed.
  constexpr int kThreshold = 1 << 20;
  mallopt(M_MMAP_THRESHOLD, kThreshold);
  mallopt(M_TRIM_THRESHOLD, kThreshold);
#endif
}

}  // namespace trefoil
