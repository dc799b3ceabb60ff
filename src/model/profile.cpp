#include "model/profile.h"

namespace trefoil {

const char* to_string(ForwardPart component) {
  constexpr const char* kNames[kNumForwardParts] = {
      "embedding", "AttnRes and norms", "attention Linears", "KDA core",       "MLA core", "dense MLP",
      "router",    "latent Linears",    "routed experts",    "shared experts", "lm_head",  "other"};
  return kNames[static_cast<size_t>(component)];
}

}  // namespace trefoil
