#include "quantize/lane_kernels_impl.h"

namespace trefoil {

LaneKernels lane_kernels_avx2() {
  return {sweep_block, search_grid};
}

}  // namespace trefoil
