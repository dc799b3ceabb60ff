#include "trefoil/synthesize.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/parallel.h"
#include "checkpoint/folder_files.h"
#include "checkpoint/output_folder.h"
#include "synthetic/shard_generator.h"
#include "synthetic/shard_layout.h"
#include "synthetic/synthetic_config.h"
#include "synthetic/tensor_values.h"
#include "synthetic/vocabulary.h"

namespace trefoil {
namespace {

// Says that the checkpoint is synthetic, and how to make it again.
std::string record_of(const SynthesizeOptions& options, const ModelConfig& config) {
  const nlohmann::ordered_json record = {
      {"what",
       "random weights in the shape of Kimi-K3, made by trefoil synthesize; vision tower and projector left out"},
      {"version", TREFOIL_VERSION},
      {"seed", options.seed},
      {"routing", options.routing == SyntheticRouting::kFlat ? "flat" : "lognormal"},
      {"num_hidden_layers", config.num_hidden_layers},
      {"num_experts", config.num_experts},
      {"num_experts_per_token", config.num_experts_per_token},
      {"vocab_size", config.vocab_size},
      {"shard_size", options.shard_size}};
  return record.dump(2) + "\n";
}

struct SmallFile {
  const char* name;
  std::string (*text)(const SynthesizeOptions& options, const ModelConfig& config, const ShardLayout& layout);
};

constexpr SmallFile kSmallFiles[] = {
    {kConfigFile, [](const auto&, const auto& config, const auto&) { return write_synthetic_config(config); }},
    {"generation_config.json",
     [](const auto&, const auto& config, const auto&) { return write_generation_config(config); }},
    {"tiktoken.model",
     [](const auto&, const auto& config, const auto&) { return write_tiktoken_model(config.vocab_size); }},
    {"tokenizer_config.json",
     [](const auto&, const auto& config, const auto&) {
       return write_tokenizer_config(config.vocab_size, config.max_position_embeddings);
     }},
    {"synthetic.json", [](const auto& options, const auto& config, const auto&) { return record_of(options, config); }},
    {kIndexFile, [](const auto&, const auto&, const auto& layout) { return write_index(index_of(layout)); }},
};

std::vector<std::string> output_files(const ShardLayout& layout) {
  std::vector<std::string> files;
  for (const SyntheticShard& shard : layout.shards) files.push_back(shard.file);
  for (const SmallFile& file : kSmallFiles) files.emplace_back(file.name);
  return files;
}

SynthesizeResult summary_of(const ModelConfig& config, const ShardLayout& layout) {
  SynthesizeResult result;
  result.num_hidden_layers = config.num_hidden_layers;
  result.num_moe_layers = config.num_hidden_layers - config.first_k_dense_replace;
  result.num_experts = config.num_experts;
  result.num_experts_per_token = config.num_experts_per_token;
  result.num_tensors = layout.num_tensors;
  result.num_shards = static_cast<int64_t>(layout.shards.size());
  result.tensor_bytes = layout.total_size;
  result.expert_bytes = layout.expert_bytes;
  for (const SyntheticShard& shard : layout.shards) {
    result.largest_shard_bytes = std::max(result.largest_shard_bytes, shard.bytes);
  }
  return result;
}

void write_shards(const SynthesizeOptions& options, const TensorValues& values, const ShardLayout& layout,
                  const fs::path& folder) {
  ThreadPool pool(options.threads);
  constexpr uint64_t kMb = 1'000'000;
  uint64_t done = 0;
  const std::function<void(uint64_t)> written = [&](uint64_t bytes) {
    done += bytes;
    if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed))
      fail(ErrorCode::kCancelled, "stopped as asked; the output folder is as it was");
    if (options.progress != nullptr) {
      options.progress->update("synthesize: MB", static_cast<int64_t>(done / kMb),
                               static_cast<int64_t>(layout.total_size / kMb));
    }
  };
  const ShardGenerator generator(values, pool, written);
  for (const SyntheticShard& shard : layout.shards) generator.write(shard, folder);
}

}  // namespace

SynthesizeResult synthesize(const SynthesizeOptions& options) {
  if (options.threads < 1) fail(ErrorCode::kInvalidArgument, "threads is {}, must be at least 1", options.threads);
  const ModelConfig config = synthetic_config(options);
  const ShardLayout layout = lay_out(config, options.shard_size);
  OutputFolder output(options.output, options.config, output_files(layout), options.overwrite);
  if (options.dry_run) return summary_of(config, layout);
  output.require_space(layout.total_size + layout.total_size / 100);  // headers and small files are well below 1 %
  output.begin();
  output.clear();
  write_shards(options, TensorValues(config, options.seed, options.routing), layout, output.staging());
  for (const SmallFile& file : kSmallFiles) {
    write_text_file(output.staging() / file.name, file.text(options, config, layout));
  }
  output.publish(kIndexFile);
  return summary_of(config, layout);
}

}  // namespace trefoil
