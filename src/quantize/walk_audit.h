// What an interrupted run left, held against its files: docs/quantization.md, "Stopping and resuming".
#pragma once

#include "quantize/walk.h"

namespace trefoil {

// Forgets the records of units whose bytes are not what they were, so that walk() does them again. Called before it by a
// process that is alone with the job. Error(kCancelled) when asked to stop.
void audit_walk(const WalkInputs& inputs);

}  // namespace trefoil
