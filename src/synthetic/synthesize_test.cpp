// A synthesized checkpoint as its users see it: inspected, verified, run, quantized.
#include "trefoil/synthesize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "model/checkpoint_weights.h"
#include "model/model.h"
#include "support/expect_error.h"
#include "support/test_support.h"
#include "synthetic/random_stream.h"
#include "trefoil/inspect.h"
#include "trefoil/quantize.h"
#include "trefoil/verify.h"

namespace trefoil {
namespace {

using testing::fails_with;
using testing::read_text;
using testing::TempDir;

SynthesizeOptions small_options(const fs::path& output) {
  SynthesizeOptions options;
  options.output = output;
  options.config = testing::tiny_k3_dir() / "config.json";
  options.layers = "dense-kda,kda,mla";
  options.num_experts = 8;
  options.vocab_size = 600;
  options.threads = 2;
  return options;
}

std::vector<std::string> files_of(const fs::path& folder) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path().filename().string());
  std::sort(files.begin(), files.end());
  return files;
}

// ---- the folder ----

TEST(Synthesize, InspectFindsNothingWrong) {
  const TempDir folder;
  const SynthesizeResult result = synthesize(small_options(folder.path() / "out"));
  const InspectReport report = inspect({.folder = folder.path() / "out", .config = {}, .index = {}});
  EXPECT_TRUE(report.findings.empty());
  EXPECT_EQ(report.num_tensors, result.num_tensors);
  EXPECT_EQ(report.total_bytes, result.tensor_bytes);
  EXPECT_EQ(report.declared_total_size, result.tensor_bytes);
  EXPECT_EQ(report.num_shards, 4);
  EXPECT_EQ(report.num_experts, 8);
  EXPECT_EQ(report.expert_format, "MXFP4, group 32");
}

TEST(Synthesize, VerifyPasses) {
  const TempDir folder;
  synthesize(small_options(folder.path() / "out"));
  VerifyOptions options;
  options.folder = folder.path() / "out";
  const VerifyReport report = verify(options);
  EXPECT_TRUE(report.passed()) << report.to_text();
  for (const VerifyCheck& check : report.checks) EXPECT_EQ(check.warnings, 0u) << check.id;
}

TEST(Synthesize, QuantizeAcceptsIt) {
  const TempDir folder;
  synthesize(small_options(folder.path() / "out"));
  QuantizeOptions options;
  options.source = folder.path() / "out";
  options.output = folder.path() / "w3";
  options.calibration = {testing::text_dir() / "calibration.jsonl"};
  options.num_calibration_samples = 2;
  options.max_seq_length = 64;
  options.threads = 2;
  quantize(options, nullptr);
  VerifyOptions verify_options;
  verify_options.folder = options.output;
  verify_options.against = options.source;
  const VerifyReport report = verify(verify_options);
  EXPECT_TRUE(report.passed()) << report.to_text();
}

TEST(Synthesize, BytesDoNotDependOnThreads) {
  const TempDir folder;
  SynthesizeOptions options = small_options(folder.path() / "one");
  options.routing = SyntheticRouting::kLogNormal;
  options.threads = 1;
  synthesize(options);
  options.output = folder.path() / "three";
  options.threads = 3;
  synthesize(options);
  const std::vector<std::string> files = files_of(folder.path() / "one");
  EXPECT_EQ(files, files_of(folder.path() / "three"));
  EXPECT_EQ(files.size(), 4u + 6u);
  for (const std::string& file : files) {
    EXPECT_EQ(sha256_of_file(folder.path() / "one" / file), sha256_of_file(folder.path() / "three" / file)) << file;
  }
}

TEST(Synthesize, SeedChangesTheWeights) {
  const TempDir folder;
  SynthesizeOptions options = small_options(folder.path() / "a");
  synthesize(options);
  options.output = folder.path() / "b";
  options.seed = 1;
  synthesize(options);
  for (const char* shard : {"model-00001-of-000004.safetensors", "model-00003-of-000004.safetensors"}) {
    EXPECT_NE(sha256_of_file(folder.path() / "a" / shard), sha256_of_file(folder.path() / "b" / shard)) << shard;
  }
}

// Other layers, experts and shards around a tensor leave it as it is.
TEST(Synthesize, ATensorDependsOnItsNameAlone) {
  const TempDir folder;
  SynthesizeOptions options = small_options(folder.path() / "small");
  synthesize(options);
  options.output = folder.path() / "large";
  options.layers = "dense-kda,kda,mla,kda";
  options.num_experts = 16;
  options.shard_size = 300'000;
  synthesize(options);
  const Checkpoint small = Checkpoint::open(folder.path() / "small");
  const Checkpoint large = Checkpoint::open(folder.path() / "large");
  int64_t compared = 0;
  for (const TensorRef& tensor : small.tensors()) {
    const TensorRef& other = large.at(tensor.info.name);
    if (other.info.shape != tensor.info.shape) continue;  // the router
    EXPECT_EQ(small.read_all(tensor), large.read_all(other)) << tensor.info.name;
    ++compared;
  }
  EXPECT_EQ(compared, static_cast<int64_t>(small.tensors().size()) - 4);
}

TEST(Synthesize, DryRunSaysTheSizesAndWritesNothing) {
  const TempDir folder;
  SynthesizeOptions options;  // all of Kimi-K3, on any disk
  options.output = folder.path() / "out";
  options.vocab_size = 163840;
  options.dry_run = true;
  const SynthesizeResult result = synthesize(options);
  EXPECT_EQ(result.tensor_bytes, 1'559'965'606'912u);
  EXPECT_EQ(result.num_tensors, 497'052);
  EXPECT_EQ(result.num_shards, 94);
  EXPECT_EQ(result.num_moe_layers, 92);
  EXPECT_EQ(result.largest_shard_bytes, 16'990'092'800u);
  EXPECT_TRUE(files_of(folder.path()).empty());
}

TEST(Synthesize, RefusesWhenTheDiskIsTooSmall) {
  const TempDir folder;
  if (fs::space(folder.path()).available > 1'570'000'000'000u) GTEST_SKIP() << "this disk holds all of Kimi-K3";
  SynthesizeOptions options;
  options.output = folder.path() / "out";
  EXPECT_TRUE(fails_with(ErrorCode::kOverBudget, "needed", [&] { synthesize(options); }));
  EXPECT_TRUE(files_of(folder.path()).empty());
}

TEST(Synthesize, RefusesAFolderThatIsNotItsOwn) {
  const TempDir folder;
  const SynthesizeOptions options = small_options(folder.path());
  testing::write_text(folder.path() / "notes.txt", "mine");
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "not empty", [&] { synthesize(options); }));
  SynthesizeOptions overwriting = options;
  overwriting.overwrite = true;
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "not an output", [&] { synthesize(overwriting); }));
  EXPECT_EQ(files_of(folder.path()), std::vector<std::string>{"notes.txt"});
}

TEST(Synthesize, OverwritesItsOwnOutput) {
  const TempDir folder;
  SynthesizeOptions options = small_options(folder.path() / "out");
  synthesize(options);
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "not empty", [&] { synthesize(options); }));
  options.overwrite = true;
  options.seed = 7;
  synthesize(options);
  EXPECT_NE(read_text(options.output / "synthetic.json").find("\"seed\": 7"), std::string::npos);
}

TEST(Synthesize, StopsAndLeavesNothing) {
  const TempDir folder;
  SynthesizeOptions options = small_options(folder.path() / "out");
  const std::atomic<bool> stop{true};
  options.stop = &stop;
  EXPECT_TRUE(fails_with(ErrorCode::kCancelled, "stopped", [&] { synthesize(options); }));
  EXPECT_FALSE(fs::exists(options.output));
}

TEST(Synthesize, RefusesWidthsThatAreNoMultipleOfTheGroup) {
  const TempDir folder;
  nlohmann::json config = nlohmann::json::parse(read_text(testing::tiny_k3_dir() / "config.json"));
  config["text_config"]["moe_intermediate_size"] = 200;
  testing::write_text(folder.path() / "config.json", config.dump());
  SynthesizeOptions options = small_options(folder.path() / "out");
  options.config = folder.path() / "config.json";
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "200", [&] { synthesize(options); }));
}

// ---- the model in it ----

double rms(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

struct DeepRun {
  std::vector<std::vector<LayerTap>> taps;  // by sequence, then layer
  double logits_rms = 0;                    // of the last sequence
  std::vector<std::vector<double>> loads;   // by layer, then expert: tokens
};

constexpr int64_t kTokens = 64;  // of a sequence

// Layers of tiny-k3's widths with 64 experts, ids drawn evenly. `num_layers` is a multiple of 4.
DeepRun run_deep(SyntheticRouting routing, int64_t num_layers, int64_t num_sequences) {
  const TempDir folder;
  SynthesizeOptions options = small_options(folder.path() / "out");
  options.layers = "dense-kda,kda,kda,mla";
  for (int64_t i = 4; i < num_layers; i += 4) options.layers += ",kda,kda,kda,mla";
  options.num_experts = 64;
  options.vocab_size = 4096;
  options.routing = routing;
  synthesize(options);

  ThreadPool pool(2);
  const ModelConfig config = load_model_config(options.output);
  const auto checkpoint = std::make_shared<Checkpoint>(Checkpoint::open(options.output));
  const Model model(config, std::make_shared<CheckpointWeights>(checkpoint), ForwardOptions{}, pool);
  DeepRun run;
  run.loads.assign(static_cast<size_t>(config.num_hidden_layers), std::vector<double>(64));
  for (int64_t sequence = 0; sequence < num_sequences; ++sequence) {
    std::vector<float> uniform(kTokens);
    RandomStream(1, "ids").uniform(static_cast<uint64_t>(sequence * kTokens), uniform);
    std::vector<int32_t> ids;
    for (const float u : uniform) ids.push_back(static_cast<int32_t>(u * 3840.0f));
    SequenceState state = model.new_sequence();
    std::vector<LayerTap>& taps = run.taps.emplace_back();
    run.logits_rms = rms(model.forward(ids, state, false, &taps));
    for (size_t layer = 0; layer < taps.size(); ++layer) {
      for (const int32_t expert : taps[layer].routing.expert) ++run.loads[layer][static_cast<size_t>(expert)];
    }
  }
  return run;
}

double log_deviation(const std::vector<double>& loads) {
  double sum = 0;
  double squares = 0;
  for (const double load : loads) {
    const double x = std::log(load + 0.5);
    sum += x;
    squares += x * x;
  }
  const auto count = static_cast<double>(loads.size());
  return std::sqrt(squares / count - sum / count * (sum / count));
}

TEST(SyntheticModel, ActivationsStayNearOneOverDepth) {
  const DeepRun run = run_deep(SyntheticRouting::kFlat, 24, 2);
  for (const std::vector<LayerTap>& taps : run.taps) {
    ASSERT_EQ(taps.size(), 24u);
    for (size_t layer = 0; layer < taps.size(); ++layer) {
      const LayerTap& tap = taps[layer];
      const auto within = [&](const std::vector<float>& values, double low, double high, const char* what) {
        const double found = rms(values);
        EXPECT_TRUE(found >= low && found <= high) << "layer " << layer << " " << what << ": RMS " << found;
      };
      within(tap.prefix, 0.2, 5, "residual stream");
      within(tap.attn_out, 0.02, 2, "attention");
      within(tap.mlp_out, 0.1, 2, "MLP");
      if (layer == 0) continue;
      within(tap.latent, 0.5, 2, "latent");
      within(tap.expert_sum, 0.1, 3, "expert sum");
    }
  }
  EXPECT_GT(run.logits_rms, 0.5);
  EXPECT_LT(run.logits_rms, 2);
}

// 1,024 tokens on 64 experts with 4 a token: 64 a mean expert, whose count alone has a relative deviation of 0.12.
TEST(SyntheticModel, FlatRoutingUsesEveryExpert) {
  const DeepRun run = run_deep(SyntheticRouting::kFlat, 12, 16);
  double mean = 0;
  for (size_t layer = 1; layer < run.loads.size(); ++layer) {
    EXPECT_LT(log_deviation(run.loads[layer]), 0.4) << "layer " << layer;
    mean += log_deviation(run.loads[layer]) / static_cast<double>(run.loads.size() - 1);
    EXPECT_GT(*std::min_element(run.loads[layer].begin(), run.loads[layer].end()), 8) << "layer " << layer;
  }
  EXPECT_LT(mean, 0.3);
}

TEST(SyntheticModel, LogNormalRoutingHasItsSpread) {
  const DeepRun run = run_deep(SyntheticRouting::kLogNormal, 12, 16);
  double mean = 0;
  for (size_t layer = 1; layer < run.loads.size(); ++layer) {
    EXPECT_NEAR(log_deviation(run.loads[layer]), 0.9, 0.35) << "layer " << layer;
    mean += log_deviation(run.loads[layer]) / static_cast<double>(run.loads.size() - 1);
  }
  EXPECT_NEAR(mean, 0.9, 0.15);
}

}  // namespace
}  // namespace trefoil
