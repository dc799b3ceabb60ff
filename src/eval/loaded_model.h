// A checkpoint folder opened for evaluation: its tensors, its config, and what a report says about it.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/linear_storage.h"
#include "checkpoint/model_config.h"
#include "eval/eval_record.h"
#include "model/model.h"

namespace trefoil {

struct LoadedModel {
  std::string label;
  std::shared_ptr<const Checkpoint> checkpoint;
  ModelConfig config;
  std::shared_ptr<const WeightSource> weights;
  JudgedModel facts;  // held_out is the caller's to fill

  std::unique_ptr<Model> make_model(const ForwardOptions& options, ThreadPool& pool) const;
};

// Reads config, index and headers. Errors as Checkpoint::open and load_model_config.
LoadedModel load_for_eval(const std::string& label, const std::filesystem::path& folder);

// Refuses (kInvalidArgument, naming both) what cannot be compared token by token: other layer counts, widths, expert
// counts or vocabulary, or another tokenizer file.
void require_comparable(const LoadedModel& reference, const LoadedModel& candidate);

// The module name of a layer's part: "model.layers.3.block_sparse_moe." + name.
std::string moe_module(int64_t layer, std::string_view name);
std::string expert_module(int64_t layer, int64_t expert, std::string_view kind);

// How one expert matrix is stored. The module name as the WeightSource takes it; the checkpoint's own prefix is added.
StoredLinear stored_expert(const LoadedModel& model, int64_t layer, int64_t expert, std::string_view kind);

// "mxfp4 g32", "int3 dense g64", "BF16".
std::string storage_name(const StoredLinear& linear);

}  // namespace trefoil
