// A checkpoint with Kimi-K3's names, shapes, dtypes and shard layout and random weights: for work on speed, memory and
// disks without the release. Nothing about quality can be learnt from it. docs/synthetic.md.
//
// The bytes of the output are a function of the options alone: not of the number of threads, and a tensor's values not
// of the other tensors (they follow from the seed, its name and its shape; the router's also from experts per token).
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "trefoil/progress.h"

namespace trefoil {

// How often a layer's experts are chosen. kLogNormal: expert e in proportion to exp(0.9 N_e), N_e standard normal, but
// for no more than 9 tokens in 10.
enum class SyntheticRouting { kFlat, kLogNormal };

struct SynthesizeOptions {
  std::filesystem::path output;  // absent, empty, or with `overwrite` an earlier output
  std::filesystem::path config;  // a Kimi-K3 config.json whose widths and constants are taken; empty: the release's own
  // "" is all layers of the config, "5" its first five; or every layer by its kind, separated by commas: kda, mla and,
  // before all others, dense-kda, dense-mla.
  std::string layers;
  int64_t num_experts = 0;            // 0: the config's
  int64_t num_experts_per_token = 0;  // 0: the config's
  int64_t vocab_size = 4096;          // 512 to 1,048,576, the 256 special tokens included
  uint64_t seed = 0;
  SyntheticRouting routing = SyntheticRouting::kFlat;
  // Bytes of tensors after which a shard ends, never inside an expert; 0: one shard a layer and one for embedding and
  // head, as the release.
  uint64_t shard_size = 0;
  bool dry_run = false;  // every check but that of free space; writes nothing
  bool overwrite = false;
  int threads = 1;
  ProgressSink* progress = nullptr;         // may be null
  const std::atomic<bool>* stop = nullptr;  // set it to make synthesize() throw Error(kCancelled) soon
};

struct SynthesizeResult {
  int64_t num_hidden_layers = 0;
  int64_t num_moe_layers = 0;
  int64_t num_experts = 0;  // of a MoE layer
  int64_t num_experts_per_token = 0;
  int64_t num_tensors = 0;
  int64_t num_shards = 0;
  uint64_t tensor_bytes = 0;
  uint64_t expert_bytes = 0;         // of tensor_bytes, the routed experts
  uint64_t largest_shard_bytes = 0;  // of tensors
};

// Holds some pieces of a few MB per thread in memory, whatever the size of the model. Nothing appears in `output`
// unless all of it does.
// Errors: kInvalidArgument (an impossible option, widths that are no multiple of 32, an output folder that is not
// empty), kOverBudget (disk), kNotFound, kCorrupt, kUnsupported (the config file), kIo, kCancelled.
SynthesizeResult synthesize(const SynthesizeOptions& options);

}  // namespace trefoil
