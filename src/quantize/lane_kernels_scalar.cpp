#include "quantize/lane_kernels_impl.h"

namespace trefoil {

LaneKernels lane_kernels_scalar() {
  return {sweep_block, search_grid};
}

}  // namespace trefoil
