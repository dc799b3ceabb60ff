// The release's rounding points against tests/golden/forward-bf16, operator by operator with the golden's own inputs.
//
// Bound. Inputs are equal, so the two sides differ only where an f32 sum, taken in another order, falls on the other
// side of a rounding boundary of bf16. Such a flip moves a value by one bf16 ulp, 2^-8 of its own size, and every later
// Linear mixes flips of many inputs. An operator is a chain of a few rounded steps whose values are of one magnitude M
// (the largest of its output): each element then differs by at most its own last rounding (2^-8 |y|, at most one ulp)
// and by inherited flips, which are rare and enter through weights of size 1/sqrt(n): together below one more ulp at M.
// So: |y - golden| <= 2 ulp(M), ulp(M) = 2^-7 * 2^floor(log2 M). Almost all elements must be equal: at least nine in
// ten.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/decoder_layer.h"
#include "model/golden_test_data.h"

namespace trefoil {
namespace {

using testing::argmax;
using testing::Goldens;

float ulp_at(float magnitude) {
  return std::ldexp(1.0f, std::ilogb(magnitude) - 7);
}

class GoldenBf16 : public ::testing::Test {
 protected:
  void expect_close(const std::string& name, std::span<const float> values) const {
    const std::vector<float>& expected = goldens_.floats(name);
    ASSERT_EQ(values.size(), expected.size()) << name;
    EXPECT_LE(testing::max_abs_difference(values, expected), 2 * ulp_at(testing::max_abs(expected))) << name;
    size_t equal = 0;
    for (size_t i = 0; i < values.size(); ++i) equal += values[i] == expected[i];
    EXPECT_GE(static_cast<double>(equal), 0.98 * static_cast<double>(values.size())) << name;
    for (const float value : values) ASSERT_EQ(value, round_to_bf16(value)) << name << ": not rounded";
  }

  std::string layer_name(int64_t layer) const { return "prose.layer" + std::to_string(layer) + "."; }

  ThreadPool pool_{2};
  Runtime runtime_{.rounding = Rounding::kBf16, .pool = &pool_};
  ModelConfig config_ = load_model_config(testing::tiny_k3_dir());
  std::shared_ptr<CheckpointWeights> weights_ = std::make_shared<CheckpointWeights>(testing::open_tiny_k3());
  Goldens goldens_{testing::golden_dir() / "forward-bf16.safetensors"};
  Model model_{config_, weights_, {.numerics = Numerics::kBf16}, pool_};
};

TEST_F(GoldenBf16, AttentionFromGoldenInputs) {
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    const std::string name = layer_name(layer);
    const std::vector<float>& h = goldens_.floats(name + "attn_in");
    const int64_t tokens = static_cast<int64_t>(h.size()) / config_.hidden_size;
    const DecoderLayer weights(config_, *weights_, layer);
    SequenceState unused;
    const SequenceRows rows{&unused, 0, tokens};
    LayerState state = weights.kda ? weights.kda->new_state() : LayerState{};
    LayerState* states[] = {&state};
    if (weights.kda) {
      expect_close(name + "attn_out",
                   weights.kda->forward(runtime_, KdaForm::kRecurrent, h, tokens, {&rows, 1}, states));
      expect_close(name + "state.conv_q", state.conv_q);
      expect_close(name + "state.conv_k", state.conv_k);
      expect_close(name + "state.conv_v", state.conv_v);
      // The recurrent state is f32, made from rounded inputs.
      EXPECT_LT(testing::relative_error(state.recurrent, goldens_.floats(name + "state.S")), 0x1p-7f) << name;
    } else {
      expect_close(name + "attn_out",
                   weights.mla->forward(runtime_, MlaForm::kExpanded, h, tokens, {&rows, 1}, states));
      expect_close(name + "state.kv", state.kv);
    }
  }
}

TEST_F(GoldenBf16, MlpFromGoldenInputs) {
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    const std::string name = layer_name(layer);
    const std::vector<float>& h = goldens_.floats(name + "mlp_in");
    const int64_t tokens = static_cast<int64_t>(h.size()) / config_.hidden_size;
    if (!config_.is_moe(layer)) {
      expect_close(name + "mlp_out", model_.dense_ffn(layer, h, tokens));
      continue;
    }
    const Routing routing = model_.route(layer, h, tokens);
    const std::vector<int64_t>& expected = goldens_.ints(name + "route");
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), routing.expert.begin(), routing.expert.end())) << name;
    // Scores and weights are f32 in every mode.
    EXPECT_LT(testing::relative_error(routing.weight, goldens_.floats(name + "route_weight")), 1e-5f) << name;
    expect_close(name + "latent", model_.latent(layer, h, tokens));
    expect_close(name + "expert_sum", model_.expert_sum(layer, goldens_.floats(name + "latent"), routing));
    expect_close(name + "mlp_out", model_.moe_finish(layer, h, goldens_.floats(name + "expert_sum"), tokens));
  }
}

// AttnRes mixes and residual adds, from the golden's prefixes: the stack is rebuilt from them.
TEST_F(GoldenBf16, MixesFromGoldenPrefixes) {
  const std::vector<int32_t> ids =
      nlohmann::json::parse(testing::read_text(testing::golden_dir() / "forward.json"))["prompts"]["prose"]["ids"];
  ResidualStream stream = model_.embed(ids);
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    const std::string name = layer_name(layer);
    SequenceState state = model_.new_sequence();
    const SequenceRows rows{&state, 0, stream.tokens};
    LayerTap tap;
    ResidualStream at_attention = stream;
    model_.attention(layer, at_attention, {&rows, 1}, &tap);
    expect_close(name + "attn_in", tap.attn_in);

    // Continue from the golden attention output.
    const std::vector<float>& attn_out = goldens_.floats(name + "attn_out");
    if (layer % config_.attn_res_block_size == 0) {
      stream.stack.push_back(stream.prefix);
      stream.prefix = attn_out;
    } else {
      model_.add_ffn(layer, stream, attn_out);  // prefix += out, whatever the sublayer
    }
    expect_close(name + "mlp_in", model_.ffn_input(layer, stream));
    model_.add_ffn(layer, stream, goldens_.floats(name + "mlp_out"));
    expect_close(name + "prefix", stream.prefix);
    stream.prefix = goldens_.floats(name + "prefix");
  }
  expect_close("prose.logits", model_.logits(stream, 0, stream.tokens));
}

// End to end a flip of routing may move a token's logits, so only the bulk is compared: the mean difference must stay
// well under the effect of rounding itself, and nearly all best tokens must be the same.
TEST_F(GoldenBf16, LogitsEndToEndInTheMean) {
  const auto json = nlohmann::json::parse(testing::read_text(testing::golden_dir() / "forward.json"));
  const size_t vocab = static_cast<size_t>(config_.vocab_size);
  int64_t rows = 0, same_best = 0;
  for (const auto& item : json["prompts"].items()) {
    const std::vector<int32_t> ids = item.value()["ids"];
    SequenceState state = model_.new_sequence();
    const std::vector<float> logits = model_.forward(ids, state);
    const std::vector<float>& expected = goldens_.floats(item.key() + ".logits");
    const std::span<const float> tail = std::span(logits).last(expected.size());
    double difference = 0, magnitude = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      difference += std::fabs(tail[i] - expected[i]);
      magnitude += std::fabs(expected[i]);
    }
    EXPECT_LT(difference / magnitude, 0.02) << item.key();
    for (size_t begin = 0; begin < expected.size(); begin += vocab, ++rows) {
      same_best += argmax(tail.subspan(begin, vocab)) == argmax(std::span(expected).subspan(begin, vocab));
    }
  }
  EXPECT_GE(static_cast<double>(same_best), 0.9 * static_cast<double>(rows));
}

}  // namespace
}  // namespace trefoil
