#include "quantize/stop.h"

#include "base/error.h"

namespace trefoil {

void stop_if_asked(const std::atomic<bool>* stop) {
  if (stop != nullptr && stop->load()) fail(ErrorCode::kCancelled, "stopped as asked; the same command continues");
}

}  // namespace trefoil
