#include "quantize/walk.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>

#include "base/sha256.h"
#include "model/checkpoint_weights.h"
#include "quantize/expert_step.h"
#include "quantize/layer_records.h"
#include "support/shard_edit.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;
using testing::tiny_k3_dir;

constexpr int64_t kRowLength = 7;

CalibrationSet some_rows() {
  CalibrationSet set;
  set.row_length = kRowLength;
  set.rows.resize(5);
  for (size_t row = 0; row < set.rows.size(); ++row) {
    for (size_t i = 0; i < kRowLength; ++i)
      set.rows[row].push_back(static_cast<int32_t>((row * 977 + i * i * 131) % 3800));
  }
  return set;
}

// Calls back when a stage is first reported.
class StageSpy : public ProgressSink {
 public:
  StageSpy(std::string wanted, std::function<void()> action) : wanted_(std::move(wanted)), action_(std::move(action)) {}
  void update(std::string_view stage, int64_t, int64_t) override {
    if (stage != wanted_ || was_seen) return;
    was_seen = true;
    action_();
  }
  bool was_seen = false;

 private:
  std::string wanted_;
  std::function<void()> action_;
};

struct LastLayerInputs {
  std::vector<float> latent;
  std::vector<int32_t> experts;  // of each token
};

// What the experts of the last layer read when the model runs over the calibration rows.
LastLayerInputs inputs_by_forward(const fs::path& folder, const ModelConfig& config, Numerics numerics,
                                  const CalibrationSet& calibration, ThreadPool& pool) {
  const auto source = std::make_shared<const Checkpoint>(Checkpoint::open(folder));
  ForwardOptions forward;
  forward.numerics = numerics;
  forward.kda = KdaForm::kChunked;
  const Model model(config, std::make_shared<CheckpointWeights>(source), forward, pool);
  LastLayerInputs inputs;
  for (const auto& row : calibration.rows) {
    std::vector<LayerTap> taps;
    SequenceState state = model.new_sequence();
    model.forward(row, state, true, &taps);
    const LayerTap& last = taps.back();
    inputs.latent.insert(inputs.latent.end(), last.latent.begin(), last.latent.end());
    inputs.experts.insert(inputs.experts.end(), last.routing.expert.begin(), last.routing.expert.end());
  }
  return inputs;
}

// The same, as the walk left it for them.
LastLayerInputs inputs_by_walk(const ActivationStore& store, const ModelConfig& config) {
  const int64_t last = config.num_hidden_layers - 1;
  LastLayerInputs inputs;
  inputs.latent.resize(static_cast<size_t>(store.tokens() * config.routed_expert_hidden_size));
  store.latent(Stream::kQuantized, last, RowAccess::kRead).read(0, inputs.latent);
  inputs.experts = store.read_routing(Stream::kQuantized, last, 0, store.tokens()).expert;
  return inputs;
}

// The calibration walk must be the model: with only the last layer to quantize, what its experts read is what
// Model::forward gives them, to the bit, however the work is cut.
TEST(Walk, IsTheModelsOwnForwardPass) {
  const auto source = std::make_shared<const Checkpoint>(Checkpoint::open(tiny_k3_dir()));
  const ModelConfig config = load_model_config(tiny_k3_dir());
  const int64_t last = config.num_hidden_layers - 1;
  std::vector<MoeLayer> layers = find_routed_experts(*source, config);
  layers.erase(layers.begin(), layers.end() - 1);
  const CalibrationSet calibration = some_rows();
  ThreadPool pool(2);
  for (const Numerics numerics : {Numerics::kF32, Numerics::kBf16}) {
    QuantizeOptions options;
    options.recipe = QuantizeRecipe::kStock;
    options.numerics = numerics;
    const LastLayerInputs expected = inputs_by_forward(tiny_k3_dir(), config, numerics, calibration, pool);
    for (const WorkGrain grain : {WorkGrain{1, 1, 8}, WorkGrain{2, 4, 32}, WorkGrain{9, 9, 5}}) {
      TempDir temp;
      const ExpertEncoding encoding;
      const std::vector<ShardPlan> plans = plan_shards(*source, layers, encoding);
      StagedShards shards(*source, plans, encoding, temp.path());
      Ledger ledger(temp.path() / "ledger", "test");
      const ActivationStore store(temp.path() / "activations", config, numerics, calibration.num_tokens(), last);
      StageSpy spy(fmt::format("layer {0} of 0..{0}: experts", last), [&] {
        const LastLayerInputs found = inputs_by_walk(store, config);
        EXPECT_EQ(found.latent, expected.latent);
        EXPECT_EQ(found.experts, expected.experts);
      });
      Crew crew(ledger, {}, spy);
      walk({source, config, options, layers, calibration, grain, 2, &store, shards, ledger, crew, pool, spy});
      EXPECT_TRUE(spy.was_seen);
      EXPECT_EQ(collect_layer_records(ledger, layers, grain, calibration.num_tokens()).front().matrices.size(), 96u);
    }
  }
}

// What the walk takes for the quantized experts, out of shards that are still being filled, are the experts of the
// finished output: the last layer reads what Model::forward on that output gives it, to the bit.
TEST(Walk, QuantizedExpertsAreThoseOfTheFinishedOutput) {
  TempDir temp;
  testing::write_cut_model(temp.path() / "source", 3, 8);
  const auto source = std::make_shared<const Checkpoint>(Checkpoint::open(temp.path() / "source"));
  const ModelConfig config = load_model_config(temp.path() / "source");
  const int64_t last = config.num_hidden_layers - 1;
  const std::vector<MoeLayer> layers = find_routed_experts(*source, config);
  ASSERT_EQ(layers.size(), 2u);
  const CalibrationSet calibration = some_rows();
  ThreadPool pool(2);
  for (const PackedLayout layout : {PackedLayout::kDense, PackedLayout::kPadded}) {
    for (const Numerics numerics : {Numerics::kF32, Numerics::kBf16}) {
      const TempDir work;
      const fs::path output = work.path() / "output";
      QuantizeOptions options;
      options.numerics = numerics;
      options.layout =
          layout == PackedLayout::kDense ? QuantizeOptions::Layout::kDense : QuantizeOptions::Layout::kPadded;
      const ExpertEncoding encoding{3, 64, layout};
      const std::vector<ShardPlan> plans = plan_shards(*source, layers, encoding);
      StagedShards shards(*source, plans, encoding, output);
      Ledger ledger(work.path() / "ledger", "test");
      const ActivationStore store(work.path() / "activations", config, numerics, calibration.num_tokens(),
                                  layers.front().layer);
      LastLayerInputs found;
      StageSpy spy(fmt::format("layer {0} of 0..{0}: experts", last), [&] { found = inputs_by_walk(store, config); });
      Crew crew(ledger, {}, spy);
      walk({source, config, options, layers, calibration, {2, 4, 3}, 2, &store, shards, ledger, crew, pool, spy});
      ASSERT_TRUE(spy.was_seen);

      for (const ShardPlan& plan : plans) shards.copy_unchanged(plan);
      testing::write_text(output / "model.safetensors.index.json", write_index(index_of(plans)));
      const LastLayerInputs expected = inputs_by_forward(output, config, numerics, calibration, pool);
      EXPECT_EQ(found.latent, expected.latent);
      EXPECT_EQ(found.experts, expected.experts);
      const LastLayerInputs unquantized = inputs_by_forward(source->folder(), config, numerics, calibration, pool);
      EXPECT_NE(found.latent, unquantized.latent);
    }
  }
}

TEST(SharedHessian, IsTheMeanOuterProductWhateverTheThreads) {
  TempDir temp;
  const std::vector<float> latent = {1, 2, 3, -1, 0.5f, 0, 4, 4, -2, 1,  1, 1, 0, 3,
                                     2, 2, 2, 2,  1,    0, 5, 1, 1,  -3, 2, 1, 0};
  const int64_t width = 3, tokens = 9;
  ActivationFile file(temp.path(), "latent", tokens, width, ActivationFile::Element::kF32, RowAccess::kWrite);
  file.write(0, latent);
  ThreadPool one(1), three(3);
  const std::vector<float> hessian = shared_hessian_of(file, 1, one);
  EXPECT_EQ(hessian, shared_hessian_of(file, 3, three));
  for (int64_t i = 0; i < width; ++i) {
    for (int64_t j = 0; j < width; ++j) {
      double sum = 0;
      for (int64_t t = 0; t < tokens; ++t) {
        sum += static_cast<double>(latent[static_cast<size_t>(t * width + i)]) *
               latent[static_cast<size_t>(t * width + j)];
      }
      EXPECT_NEAR(hessian[static_cast<size_t>(i * width + j)], sum / tokens, 1e-5);
    }
  }
  // fewer tokens than parts of the sum
  ActivationFile single(temp.path(), "single", 1, width, ActivationFile::Element::kF32, RowAccess::kWrite);
  single.write(0, std::vector<float>{2, 0, 1});
  EXPECT_EQ(shared_hessian_of(single, 1, one)[0], 4.0f);
}

}  // namespace
}  // namespace trefoil
