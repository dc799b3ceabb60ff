#include "quantize/activations.h"

#include <gmock/gmock.h>

#include "model/checkpoint_weights.h"
#include "quantize/layer_job.h"
#include "quantize/token_lists.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using testing::tiny_k3_dir;

struct Loaded {
  std::shared_ptr<const Checkpoint> checkpoint = std::make_shared<const Checkpoint>(Checkpoint::open(tiny_k3_dir()));
  ModelConfig config = load_model_config(tiny_k3_dir());
  ThreadPool pool{2};

  Model model(Numerics numerics) {
    ForwardOptions options;
    options.numerics = numerics;
    return Model(config, std::make_shared<CheckpointWeights>(checkpoint), options, pool);
  }
};

// Three rows of different lengths, so that a mistake in offsets shows.
std::vector<std::vector<int32_t>> some_rows() {
  std::vector<std::vector<int32_t>> rows(3);
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t i = 0; i < 5 + 4 * row; ++i)
      rows[row].push_back(static_cast<int32_t>((row * 977 + i * i * 131) % 3800));
  }
  return rows;
}

// The sum over experts as the quantizer takes it: expert by expert, gathered and scattered.
std::vector<float> sum_by_expert(Loaded& loaded, int64_t layer, const MoeInput& input, Numerics numerics) {
  const std::vector<MoeLayer> layers = find_routed_experts(*loaded.checkpoint, loaded.config);
  const MoeLayer& moe = layers[static_cast<size_t>(layer - 1)];
  const std::vector<ExpertTokens> tokens = tokens_by_expert(input.routing, loaded.config.num_experts);
  const int64_t latent = loaded.config.routed_expert_hidden_size, inner = loaded.config.moe_intermediate_size;
  std::vector<float> sum(input.latent.size(), 0.0f);
  for (size_t e = 0; e < tokens.size(); ++e) {
    std::array<std::vector<float>, 3> weight;
    for (size_t part = 0; part < 3; ++part) {
      const StoredLinear& linear = moe.experts[e].linear[part];
      weight[part].resize(static_cast<size_t>(linear.out_features * linear.in_features));
      decode_linear(*loaded.checkpoint, linear, 0, linear.out_features, weight[part]);
    }
    const ExpertWeights expert{weight[0], weight[2], weight[1], latent, inner};
    const std::vector<float> z = gather_rows(input.latent, latent, tokens[e].token);
    std::vector<float> hidden(static_cast<size_t>(tokens[e].count() * inner)), out(z.size());
    expert_hidden(expert, loaded.config, numerics, z, tokens[e].count(), hidden);
    expert_output(expert, numerics, hidden, tokens[e].count(), out);
    scatter_add(tokens[e], out, latent, sum);
  }
  round_expert_sum(sum, numerics);
  return sum;
}

// The calibration walk must be the model: walking the layers with the experts summed the quantizer's way reproduces the
// routing and latents of Model::forward for every row, to the bit.
TEST(ActivationStream, WalkIsTheModelsOwnForwardPass) {
  for (const Numerics numerics : {Numerics::kF32, Numerics::kBf16}) {
    Loaded loaded;
    const Model model = loaded.model(numerics);
    const auto rows = some_rows();
    std::vector<std::vector<LayerTap>> taps(rows.size());
    for (size_t row = 0; row < rows.size(); ++row) {
      SequenceState state = model.new_sequence();
      model.forward(rows[row], state, true, &taps[row]);
    }
    ActivationStream stream(model, rows);
    EXPECT_EQ(stream.num_tokens(), 5 + 9 + 13);
    for (int64_t layer = 0; layer < loaded.config.num_hidden_layers; ++layer) {
      stream.attention(layer);
      if (!loaded.config.is_moe(layer)) {
        stream.dense_ffn(layer);
        continue;
      }
      const MoeInput input = stream.moe_input(layer);
      std::vector<float> latent;
      std::vector<int32_t> experts;
      for (const auto& row : taps) {
        const LayerTap& tap = row[static_cast<size_t>(layer)];
        latent.insert(latent.end(), tap.latent.begin(), tap.latent.end());
        experts.insert(experts.end(), tap.routing.expert.begin(), tap.routing.expert.end());
      }
      ASSERT_EQ(input.latent, latent) << "layer " << layer;
      ASSERT_EQ(input.routing.expert, experts) << "layer " << layer;
      const std::vector<float> sum = sum_by_expert(loaded, layer, input, numerics);
      ASSERT_EQ(sum, model.expert_sum(layer, input.latent, input.routing)) << "layer " << layer;
      stream.moe_finish(layer, sum);
    }
  }
}

TEST(SharedHessian, IsTheMeanOuterProductWhateverTheThreads) {
  const std::vector<float> latent = {1, 2, 3, -1, 0.5f, 0, 4, 4, -2, 1,  1, 1, 0, 3,
                                     2, 2, 2, 2,  1,    0, 5, 1, 1,  -3, 2, 1, 0};
  const int64_t width = 3, tokens = 9;
  ThreadPool one(1), three(3);
  const std::vector<float> hessian = shared_hessian(latent, width, one);
  EXPECT_EQ(hessian, shared_hessian(latent, width, three));
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
  EXPECT_EQ(shared_hessian(std::vector<float>{2, 0, 1}, 3, one)[0], 4.0f);
}

}  // namespace
}  // namespace trefoil
