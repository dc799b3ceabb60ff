// The whole forward pass in f32 against tests/golden/forward-f32 (an independent implementation in PyTorch). f32
// against f32, only the order of sums differs; a trained model of five layers amplifies 1e-7 by far less than a
// thousand.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "model/golden_test_data.h"

namespace trefoil {
namespace {

using testing::argmax;
using testing::Goldens;
using testing::relative_error;

constexpr float kTolerance = 1e-4f;  // max abs difference over max abs reference

const nlohmann::json& forward_json() {
  static const nlohmann::json json = nlohmann::json::parse(testing::read_text(testing::golden_dir() / "forward.json"));
  return json;
}

const Goldens& goldens() {
  static const Goldens loaded(testing::golden_dir() / "forward-f32.safetensors");
  return loaded;
}

std::vector<int32_t> prompt_ids(const std::string& name) {
  return forward_json()["prompts"][name]["ids"];
}

// All prompts, or those whose layers the goldens hold and not only their logits.
std::vector<std::string> prompt_names(bool with_layers) {
  std::vector<std::string> names;
  for (const auto& item : forward_json()["prompts"].items()) {
    if (!with_layers || goldens().has(item.key() + ".layer0.attn_in")) names.push_back(item.key());
  }
  return names;
}

class GoldenF32Logits : public ::testing::TestWithParam<std::string> {
 protected:
  ThreadPool pool_{2};
  std::unique_ptr<Model> model_ = testing::load_tiny_k3({.numerics = Numerics::kF32}, pool_);
};

class GoldenF32Layers : public GoldenF32Logits {};

void expect_close(const std::string& name, std::span<const float> values) {
  ASSERT_TRUE(goldens().has(name)) << name;
  EXPECT_LT(relative_error(values, goldens().floats(name)), kTolerance) << name;
}

TEST_P(GoldenF32Logits, Agree) {
  const std::string prompt = GetParam();
  SequenceState state = model_->new_sequence();
  const std::vector<float> logits = model_->forward(prompt_ids(prompt), state);
  const std::vector<float>& expected = goldens().floats(prompt + ".logits");
  // `long` keeps only its last positions.
  const std::span<const float> tail = std::span(logits).last(expected.size());
  EXPECT_LT(relative_error(tail, expected), kTolerance);
  const size_t vocab = static_cast<size_t>(model_->config().vocab_size);
  for (size_t begin = 0; begin < expected.size(); begin += vocab) {
    EXPECT_EQ(argmax(tail.subspan(begin, vocab)), argmax(std::span(expected).subspan(begin, vocab)));
  }
}

TEST_P(GoldenF32Layers, AndStatesAgree) {
  const std::string prompt = GetParam();
  SequenceState state = model_->new_sequence();
  std::vector<LayerTap> taps;
  model_->forward(prompt_ids(prompt), state, false, &taps);
  ASSERT_EQ(static_cast<int64_t>(taps.size()), model_->config().num_hidden_layers);
  for (size_t layer = 0; layer < taps.size(); ++layer) {
    const std::string name = prompt + ".layer" + std::to_string(layer);
    const LayerTap& tap = taps[layer];
    expect_close(name + ".attn_in", tap.attn_in);
    expect_close(name + ".attn_out", tap.attn_out);
    expect_close(name + ".mlp_in", tap.mlp_in);
    expect_close(name + ".mlp_out", tap.mlp_out);
    expect_close(name + ".prefix", tap.prefix);
    if (model_->config().is_moe(static_cast<int64_t>(layer))) {
      const std::vector<int64_t>& route = goldens().ints(name + ".route");
      EXPECT_TRUE(std::equal(route.begin(), route.end(), tap.routing.expert.begin(), tap.routing.expert.end())) << name;
      expect_close(name + ".route_weight", tap.routing.weight);
      expect_close(name + ".latent", tap.latent);
      expect_close(name + ".expert_sum", tap.expert_sum);
    }
    const LayerState& kept = state.layers[layer];
    if (model_->config().is_kda(static_cast<int64_t>(layer))) {
      expect_close(name + ".state.conv_q", kept.conv_q);
      expect_close(name + ".state.conv_k", kept.conv_k);
      expect_close(name + ".state.conv_v", kept.conv_v);
      expect_close(name + ".state.S", kept.recurrent);
    } else {
      expect_close(name + ".state.kv", kept.kv);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Prompts, GoldenF32Logits, ::testing::ValuesIn(prompt_names(false)),
                         [](const auto& instance) { return instance.param; });
INSTANTIATE_TEST_SUITE_P(Prompts, GoldenF32Layers, ::testing::ValuesIn(prompt_names(true)),
                         [](const auto& instance) { return instance.param; });

// Greedy decoding, one token at a time with the absorbed attention, as generation runs. A step whose two best logits
// lie closer than kNoise may go either way; the comparison goes on with the golden's token.
TEST(GoldenGreedy, ContinuationsAgree) {
  constexpr double kNoise = 1e-3;
  ThreadPool pool(2);
  const auto model = testing::load_tiny_k3({.numerics = Numerics::kF32, .mla = MlaForm::kAbsorbed}, pool);
  for (const auto& item : forward_json()["greedy"].items()) {
    const std::vector<int32_t> expected = item.value()["ids"];
    const std::vector<double> margin = item.value()["top1_margin"];
    SequenceState state = model->new_sequence();
    std::vector<float> logits = model->forward(prompt_ids(item.key()), state, true);
    for (size_t step = 0; step < expected.size(); ++step) {
      if (margin[step] > kNoise) {
        EXPECT_EQ(argmax(logits), expected[step]) << item.key() << " step " << step;
      }
      logits = model->forward({&expected[step], 1}, state, true);
    }
  }
}

// -log softmax(row)[target], in double.
double nll(std::span<const float> row, int32_t target) {
  const float largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (const float value : row) sum += std::exp(static_cast<double>(value) - largest);
  return std::log(sum) + largest - row[static_cast<size_t>(target)];
}

TEST(GoldenPerplexity, SequencesAgree) {
  ThreadPool pool(2);
  const auto model = testing::load_tiny_k3({.numerics = Numerics::kF32}, pool);
  const auto& golden = forward_json()["perplexity"];
  const size_t vocab = static_cast<size_t>(model->config().vocab_size);
  double total = 0;
  for (size_t s = 0; s < golden["sequences"].size(); ++s) {
    const std::vector<int32_t> ids = golden["sequences"][s];
    SequenceState state = model->new_sequence();
    const std::vector<float> logits = model->forward(ids, state);
    double sum = 0;
    for (size_t t = 0; t + 1 < ids.size(); ++t) sum += nll(std::span(logits).subspan(t * vocab, vocab), ids[t + 1]);
    const double mean = sum / static_cast<double>(ids.size() - 1);
    EXPECT_NEAR(mean, golden["mean_nll"][s].get<double>(), 2e-5) << "sequence " << s;
    total += mean;
  }
  const double sequences = static_cast<double>(golden["sequences"].size());
  EXPECT_NEAR(std::exp(total / sequences), golden["ppl"].get<double>(), 1e-3);
}

}  // namespace
}  // namespace trefoil
