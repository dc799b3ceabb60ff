// What quantize() does when it was asked to stop: it ends where what is done is kept.
#pragma once

#include <atomic>

namespace trefoil {

// Error(kCancelled) when `stop` is set. It may be null.
void stop_if_asked(const std::atomic<bool>* stop);

}  // namespace trefoil
