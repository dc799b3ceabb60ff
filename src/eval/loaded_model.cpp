#include "eval/loaded_model.h"

#include <fmt/format.h>

#include "base/error.h"
#include "checkpoint/folder_files.h"
#include "model/checkpoint_weights.h"

namespace trefoil {
namespace {

constexpr const char* kTokenizerFile = "tiktoken.model";

std::string hash_if_there(const fs::path& file) {
  return fs::exists(file) ? sha256_of_file(file) : std::string();
}

// "out/final" -> "final", also for "out/final/".
std::string last_name(const fs::path& folder) {
  const fs::path whole = fs::absolute(folder).lexically_normal();
  return whole.has_filename() ? whole.filename().string() : whole.parent_path().filename().string();
}

int64_t first_moe_layer(const ModelConfig& config) {
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.is_moe(layer)) return layer;
  }
  return -1;
}

struct Size {
  const char* key;
  int64_t ModelConfig::*member;
};

constexpr Size kSizes[] = {
    {"vocab_size", &ModelConfig::vocab_size},
    {"hidden_size", &ModelConfig::hidden_size},
    {"num_hidden_layers", &ModelConfig::num_hidden_layers},
    {"first_k_dense_replace", &ModelConfig::first_k_dense_replace},
    {"num_experts", &ModelConfig::num_experts},
    {"num_experts_per_token", &ModelConfig::num_experts_per_token},
    {"moe_intermediate_size", &ModelConfig::moe_intermediate_size},
    {"routed_expert_hidden_size", &ModelConfig::routed_expert_hidden_size},
};

}  // namespace

std::string moe_module(int64_t layer, std::string_view name) {
  return fmt::format("model.layers.{}.block_sparse_moe.{}", layer, name);
}

std::string expert_module(int64_t layer, int64_t expert, std::string_view kind) {
  return moe_module(layer, fmt::format("experts.{}.{}", expert, kind));
}

StoredLinear stored_expert(const LoadedModel& model, int64_t layer, int64_t expert, std::string_view kind) {
  const bool prefixed = model.checkpoint->find("language_model.model.embed_tokens.weight") != nullptr;
  return resolve_linear(*model.checkpoint, (prefixed ? "language_model." : "") + expert_module(layer, expert, kind));
}

std::string storage_name(const StoredLinear& linear) {
  switch (linear.format) {
    case LinearFormat::kMxfp4:
      return fmt::format("mxfp4 g{}", linear.group_size);
    case LinearFormat::kPackedInt:
      return fmt::format("int{} {} g{}", linear.num_bits, to_string(linear.layout), linear.group_size);
    case LinearFormat::kPlain:
      break;
  }
  return std::string(to_string(linear.weight->info.dtype));
}

std::unique_ptr<Model> LoadedModel::make_model(const ForwardOptions& options, ThreadPool& pool) const {
  return std::make_unique<Model>(config, weights, options, pool);
}

LoadedModel load_for_eval(const std::string& label, const fs::path& folder) {
  LoadedModel model;
  model.label = label;
  model.config = load_model_config(folder);
  model.checkpoint = std::make_shared<const Checkpoint>(Checkpoint::open(folder));
  model.weights = std::make_shared<CheckpointWeights>(model.checkpoint);
  model.facts.label = label;
  model.facts.folder = last_name(folder);
  model.facts.config_sha256 = hash_if_there(folder / kConfigFile);
  model.facts.index_sha256 = hash_if_there(folder / kIndexFile);
  model.facts.tensor_bytes = model.checkpoint->total_tensor_bytes();
  const int64_t layer = first_moe_layer(model.config);
  model.facts.experts = layer < 0 ? "-" : storage_name(stored_expert(model, layer, 0, "w1"));
  return model;
}

void require_comparable(const LoadedModel& reference, const LoadedModel& candidate) {
  for (const Size& size : kSizes) {
    const int64_t expected = reference.config.*size.member, found = candidate.config.*size.member;
    if (expected == found) continue;
    fail(ErrorCode::kInvalidArgument, "{}: {} is {}, but {} has {}: not the same model", candidate.label, size.key,
         found, reference.label, expected);
  }
  const fs::path ours = reference.checkpoint->folder() / kTokenizerFile;
  const fs::path theirs = candidate.checkpoint->folder() / kTokenizerFile;
  if (fs::exists(ours) && fs::exists(theirs) && sha256_of_file(ours) != sha256_of_file(theirs)) {
    fail(ErrorCode::kInvalidArgument, "{}: {} differs from that of {}: token ids would not mean the same",
         candidate.label, kTokenizerFile, reference.label);
  }
}

}  // namespace trefoil
