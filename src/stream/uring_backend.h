// Reads by io_uring: the kernel works through them without a thread of ours, into memory that it has pinned once.
#pragma once

#include <memory>
#include <string>

#include "stream/read_backend.h"

namespace trefoil {

// Null when the system refuses a ring, with the reason. `depth`: operations under way at once; more wait their turn
// inside.
std::unique_ptr<ReadBackend> make_uring_backend(int depth, std::string* refusal);

}  // namespace trefoil
