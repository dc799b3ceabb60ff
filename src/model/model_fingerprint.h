// Tells the models apart whose sequence states do not mix: docs/formats.md, "Sequence state".
#pragma once

#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/model_config.h"
#include "model/model.h"

namespace trefoil {

// SHA-256, 64 hex digits, of everything that decides a state's bits: the dimensions and constants of the config, how the
// forward pass computes, every tensor's name, dtype, shape and shard, and 4 KiB out of the middle of three tensors of
// each shard (first, middle and last by name). The data as a whole is not read: it may be 1.5 TB.
std::string model_fingerprint(const ModelConfig& config, const Checkpoint& checkpoint, const ForwardOptions& options,
                              TrunkForm trunk);

}  // namespace trefoil
