#include "quantize/refine_group_impl.h"

namespace trefoil {

GroupMoves group_moves_scalar() {
  return {update_scale, descend_codes, search_pairs};
}

}  // namespace trefoil
