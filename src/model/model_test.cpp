// Properties of the forward pass that must hold exactly, on made-up models of odd shapes: independence from cuts, batch
// mates and threads, the equality of the two forms of each attention, and what is refused.
#include "model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/matmul.h"
#include "model/golden_test_data.h"
#include "model/kda_layer.h"
#include "model/synthetic_test_model.h"

namespace trefoil {
namespace {

using testing::random_ids;
using testing::random_weights;
using testing::relative_error;
using testing::small_config;

constexpr ForwardOptions kF32 = {.numerics = Numerics::kF32};

struct Outcome {
  std::vector<float> logits;
  SequenceState state;
};

// The whole of `ids` in calls of the given lengths (the last takes what is left).
Outcome run_in_pieces(const Model& model, const std::vector<int32_t>& ids, std::vector<size_t> pieces) {
  Outcome run{{}, model.new_sequence()};
  size_t begin = 0;
  pieces.push_back(ids.size());
  for (const size_t piece : pieces) {
    const size_t count = std::min(piece, ids.size() - begin);
    const std::vector<float> logits = model.forward(std::span(ids).subspan(begin, count), run.state);
    run.logits.insert(run.logits.end(), logits.begin(), logits.end());
    begin += count;
  }
  return run;
}

void expect_same(const Outcome& a, const Outcome& b, const std::string& what) {
  EXPECT_EQ(a.logits, b.logits) << what;
  ASSERT_EQ(a.state.layers.size(), b.state.layers.size());
  EXPECT_EQ(a.state.position, b.state.position);
  for (size_t l = 0; l < a.state.layers.size(); ++l) {
    EXPECT_EQ(a.state.layers[l].conv_q, b.state.layers[l].conv_q) << what;
    EXPECT_EQ(a.state.layers[l].conv_k, b.state.layers[l].conv_k) << what;
    EXPECT_EQ(a.state.layers[l].conv_v, b.state.layers[l].conv_v) << what;
    EXPECT_EQ(a.state.layers[l].recurrent, b.state.layers[l].recurrent) << what;
    EXPECT_EQ(a.state.layers[l].kv, b.state.layers[l].kv) << what;
  }
}

std::string message_of(const std::function<void()>& action, ErrorCode code) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

class ModelTest : public ::testing::Test {
 protected:
  Model make(const ForwardOptions& options) { return Model(config_, weights_, options, pool_); }

  ModelConfig config_ = small_config(5);
  std::shared_ptr<MemoryWeights> weights_ = random_weights(config_, 7);
  ThreadPool pool_{2};
  std::vector<int32_t> ids_ = random_ids(config_, 23, 8);
};

TEST_F(ModelTest, EveryCutOfAPromptGivesTheSameBits) {
  for (const Numerics numerics : {Numerics::kF32, Numerics::kBf16}) {
    for (const MlaForm mla : {MlaForm::kExpanded, MlaForm::kAbsorbed}) {
      const Model model = make({.numerics = numerics, .mla = mla});
      const Outcome whole = run_in_pieces(model, ids_, {});
      for (size_t cut = 1; cut < ids_.size(); ++cut) {
        expect_same(run_in_pieces(model, ids_, {cut}), whole, "cut at " + std::to_string(cut));
      }
      expect_same(run_in_pieces(model, ids_, std::vector<size_t>(ids_.size(), 1)), whole, "token by token");
      expect_same(run_in_pieces(model, ids_, {1, 5, 2, 7}), whole, "uneven pieces");
    }
  }
}

// f32 sums in two orders: a few hundred roundings of 2^-24 through five layers of a random model.
constexpr float kFormsAgree = 1e-4f;

TEST_F(ModelTest, AbsorbedAttentionEqualsExpanded) {
  const Outcome expanded = run_in_pieces(make(kF32), ids_, {});
  const Outcome absorbed = run_in_pieces(make({.numerics = Numerics::kF32, .mla = MlaForm::kAbsorbed}), ids_, {});
  EXPECT_LT(relative_error(absorbed.logits, expanded.logits), kFormsAgree);
  EXPECT_NE(absorbed.logits, expanded.logits);  // it is another computation
}

TEST_F(ModelTest, ChunkedKdaEqualsRecurrentWhereverItIsCut) {
  const std::vector<int32_t> ids = random_ids(config_, 150, 9);
  const Outcome recurrent = run_in_pieces(make(kF32), ids, {});
  const Model model = make({.numerics = Numerics::kF32, .kda = KdaForm::kChunked});
  for (const std::vector<size_t>& pieces : {std::vector<size_t>{}, {1}, {64}, {70, 3}, {100, 1, 1}}) {
    const Outcome chunked = run_in_pieces(model, ids, pieces);
    EXPECT_LT(relative_error(chunked.logits, recurrent.logits), kFormsAgree);
    EXPECT_LT(relative_error(chunked.state.layers[0].recurrent, recurrent.state.layers[0].recurrent), kFormsAgree);
  }
}

TEST_F(ModelTest, ThreadsDoNotChangeBits) {
  const Outcome two = run_in_pieces(make({}), ids_, {9});
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    const Model model(config_, weights_, {}, pool);
    expect_same(run_in_pieces(model, ids_, {9}), two, std::to_string(threads) + " threads");
  }
}

TEST_F(ModelTest, LastOnlyIsTheLastRow) {
  const Model model = make({});
  SequenceState a = model.new_sequence(), b = model.new_sequence();
  const std::vector<float> all = model.forward(ids_, a);
  const std::vector<float> last = model.forward(ids_, b, true);
  EXPECT_EQ(last, std::vector<float>(all.end() - config_.vocab_size, all.end()));
}

TEST_F(ModelTest, InterleavedSequencesDoNotMeet) {
  const Model model = make({});
  const std::vector<std::vector<int32_t>> prompts = {random_ids(config_, 6, 1), random_ids(config_, 6, 2),
                                                     random_ids(config_, 6, 3)};
  std::vector<Outcome> together(3, Outcome{{}, model.new_sequence()});
  for (size_t t = 0; t < 6; ++t) {
    for (size_t s = 0; s < 3; ++s) {
      const std::vector<float> logits = model.forward({&prompts[s][t], 1}, together[s].state);
      together[s].logits.insert(together[s].logits.end(), logits.begin(), logits.end());
    }
  }
  for (size_t s = 0; s < 3; ++s) {
    expect_same(together[s], run_in_pieces(model, prompts[s], {}), "sequence " + std::to_string(s));
  }
}

// Runs several sequences as one block of tokens, layer by layer, as calibration does.
std::vector<float> run_as_batch(const Model& model, const std::vector<std::vector<int32_t>>& prompts,
                                std::vector<SequenceState>& states) {
  std::vector<int32_t> ids;
  std::vector<SequenceRows> rows;
  for (size_t s = 0; s < prompts.size(); ++s) {
    rows.push_back({&states[s], static_cast<int64_t>(ids.size()), static_cast<int64_t>(prompts[s].size())});
    ids.insert(ids.end(), prompts[s].begin(), prompts[s].end());
  }
  ResidualStream stream = model.embed(ids);
  for (int64_t layer = 0; layer < model.config().num_hidden_layers; ++layer) {
    model.attention(layer, stream, rows);
    const std::vector<float> h = model.ffn_input(layer, stream);
    if (model.config().is_moe(layer)) {
      const Routing routing = model.route(layer, h, stream.tokens);
      const std::vector<float> sum = model.expert_sum(layer, model.latent(layer, h, stream.tokens), routing);
      model.add_ffn(layer, stream, model.moe_finish(layer, h, sum, stream.tokens));
    } else {
      model.add_ffn(layer, stream, model.dense_ffn(layer, h, stream.tokens));
    }
  }
  return model.logits(stream, 0, stream.tokens);
}

TEST_F(ModelTest, ABatchOfSequencesGivesEachItsOwnBits) {
  const Model model = make({});
  const std::vector<std::vector<int32_t>> prompts = {random_ids(config_, 9, 4), random_ids(config_, 1, 5),
                                                     random_ids(config_, 17, 6)};
  std::vector<SequenceState> states(3, model.new_sequence());
  const std::vector<float> together = run_as_batch(model, prompts, states);
  size_t begin = 0;
  for (size_t s = 0; s < prompts.size(); ++s) {
    Outcome alone = run_in_pieces(model, prompts[s], {});
    const Outcome mine{{together.begin() + static_cast<std::ptrdiff_t>(begin),
                        together.begin() + static_cast<std::ptrdiff_t>(begin + alone.logits.size())},
                       states[s]};
    alone.state.position = 0;  // only forward() counts positions
    expect_same(mine, alone, "sequence " + std::to_string(s));
    begin += alone.logits.size();
  }
}

// A KDA layer's state has one size whatever the length; only MLA layers keep something for every token.
TEST_F(ModelTest, EachKindOfLayerKeepsOnlyItsOwnState) {
  const Outcome run = run_in_pieces(make(kF32), ids_, {});
  const size_t tokens = ids_.size(), channels = static_cast<size_t>(config_.kda_num_heads * config_.kda_head_dim);
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    const LayerState& state = run.state.layers[static_cast<size_t>(layer)];
    const bool kda = config_.is_kda(layer);
    EXPECT_EQ(state.recurrent.size(), kda ? channels * static_cast<size_t>(config_.kda_head_dim) : 0u) << layer;
    EXPECT_EQ(state.conv_q.size() + state.conv_k.size() + state.conv_v.size(),
              kda ? 3 * channels * static_cast<size_t>(config_.short_conv_kernel_size - 1) : 0u)
        << layer;
    EXPECT_EQ(state.kv.size(), kda ? 0u : tokens * static_cast<size_t>(config_.kv_lora_rank + config_.qk_rope_head_dim))
        << layer;
  }
}

TEST_F(ModelTest, HundredsOfExpertsInTinyWidths) {
  config_ = small_config(2);
  config_.num_experts = 896;
  config_.num_experts_per_token = 16;
  config_.moe_intermediate_size = 5;
  config_.routed_expert_hidden_size = 7;
  weights_ = random_weights(config_, 10);
  const Model model = make({});
  const std::vector<float> h = testing::Random(11).vector(30 * config_.hidden_size);
  const Routing routing = model.route(1, h, 30);
  for (int64_t t = 0; t < 30; ++t) {
    const auto row = routing.expert.begin() + t * 16;
    EXPECT_TRUE(std::is_sorted(row, row + 16));
    EXPECT_EQ(std::adjacent_find(row, row + 16), row + 16);
  }
  expect_same(run_in_pieces(model, ids_, {4}), run_in_pieces(model, ids_, {}), "896 experts");
}

TEST_F(ModelTest, ExpertSumIsTheAscendingSumOfSingleExperts) {
  for (const Numerics numerics : {Numerics::kF32, Numerics::kBf16}) {
    const Model model = make({.numerics = numerics});
    const int64_t tokens = 11, latent = config_.routed_expert_hidden_size, inner = config_.moe_intermediate_size;
    std::vector<float> z = testing::Random(12).vector(tokens * latent);
    for (float& value : z) value = round_to_bf16(value);
    const std::vector<float> h = testing::Random(13).vector(tokens * config_.hidden_size);
    const Routing routing = model.route(1, h, tokens);
    const std::vector<float> sum = model.expert_sum(1, z, routing);
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<float> expected(static_cast<size_t>(latent));
      for (int64_t slot = 0; slot < routing.top_k; ++slot) {
        const size_t at = static_cast<size_t>(t * routing.top_k + slot);
        const std::string name = "model.layers.1.block_sparse_moe.experts." + std::to_string(routing.expert[at]);
        const GateUpWeights gate_up{weights_->at(name + ".w1.weight"), weights_->at(name + ".w3.weight"), latent,
                                    inner};
        const std::vector<float>& w2 = weights_->at(name + ".w2.weight");
        std::vector<float> hidden(static_cast<size_t>(inner)), out(static_cast<size_t>(latent));
        const std::span<const float> token = std::span(z).subspan(static_cast<size_t>(t * latent), out.size());
        expert_hidden(gate_up, config_, numerics, token, 1, hidden);
        matmul({.x = hidden.data(),
                .w = w2.data(),
                .y = out.data(),
                .tokens = 1,
                .rows = latent,
                .k = inner,
                .x_stride = inner,
                .y_stride = latent});
        if (numerics == Numerics::kBf16) std::transform(out.begin(), out.end(), out.begin(), round_to_bf16);
        for (size_t d = 0; d < out.size(); ++d) expected[d] += routing.weight[at] * out[d];
      }
      for (size_t d = 0; d < expected.size(); ++d) {
        const float want = numerics == Numerics::kBf16 ? round_to_bf16(expected[d]) : expected[d];
        EXPECT_EQ(sum[static_cast<size_t>(t * latent) + d], want);
      }
    }
  }
}

// Enough tokens that the experts of the layer are worked on in several batches.
TEST_F(ModelTest, ExpertSumOfAVeryLargeBlockIsTheSame) {
  const Model model = make(kF32);
  const int64_t tokens = 120000, some = 50, latent = config_.routed_expert_hidden_size;
  testing::Random random(14);
  const std::vector<float> z = random.vector(tokens * latent);
  Routing routing{.tokens = tokens, .top_k = 3, .expert = {}, .weight = random.vector(tokens * 3, 0, 1)};
  for (int64_t t = 0; t < tokens; ++t) {
    const int32_t first = static_cast<int32_t>(random.bits() % 10);
    routing.expert.insert(routing.expert.end(), {first, first + 1, first + 2});
  }
  const std::vector<float> all = model.expert_sum(1, z, routing);
  Routing tail{.tokens = some,
               .top_k = 3,
               .expert = {routing.expert.end() - some * 3, routing.expert.end()},
               .weight = {routing.weight.end() - some * 3, routing.weight.end()}};
  const std::vector<float> last = model.expert_sum(1, std::span(z).last(static_cast<size_t>(some * latent)), tail);
  EXPECT_TRUE(std::equal(last.begin(), last.end(), all.end() - some * latent));
}

TEST_F(ModelTest, AttentionResidualsStackTheRawSumAndStartAgain) {
  config_ = small_config(14);
  config_.attn_res_block_size = 12;
  weights_ = random_weights(config_, 15);
  const Model model = make(kF32);
  ResidualStream stream = model.embed(ids_);
  std::vector<float> before;
  for (int64_t layer = 0; layer < 14; ++layer) {
    SequenceState state = model.new_sequence();
    const SequenceRows rows{&state, 0, stream.tokens};
    before = stream.prefix;
    const size_t stacked = stream.stack.size();
    LayerTap tap;
    model.attention(layer, stream, {&rows, 1}, &tap);
    if (layer % 12 == 0) {
      ASSERT_EQ(stream.stack.size(), stacked + 1) << layer;
      EXPECT_EQ(stream.stack.back(), before) << layer;  // the sum itself, not the mix
      EXPECT_EQ(stream.prefix, tap.attn_out) << layer;  // and nothing of it stays
    } else {
      ASSERT_EQ(stream.stack.size(), stacked) << layer;
      for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(stream.prefix[i], before[i] + tap.attn_out[i]);
    }
    const std::vector<float> h = model.ffn_input(layer, stream);
    if (config_.is_moe(layer)) {
      const Routing routing = model.route(layer, h, stream.tokens);
      const std::vector<float> sum = model.expert_sum(layer, model.latent(layer, h, stream.tokens), routing);
      model.add_ffn(layer, stream, model.moe_finish(layer, h, sum, stream.tokens));
    } else {
      model.add_ffn(layer, stream, model.dense_ffn(layer, h, stream.tokens));
    }
  }
  EXPECT_EQ(stream.stack.size(), 2u);
}

// ---- A_log ----

class ALog : public ModelTest {
 protected:
  static constexpr const char* kName = "model.layers.0.self_attn.A_log";
  std::vector<float> recurrent_state() {
    SequenceState state = make(kF32).new_sequence();
    make(kF32).forward(ids_, state);
    return state.layers[0].recurrent;
  }
};

TEST_F(ALog, EachHeadHasItsOwn) {
  const std::vector<float> before = recurrent_state();
  weights_->at(kName)[1] += 0.5f;
  const std::vector<float> after = recurrent_state();
  const size_t head = before.size() / static_cast<size_t>(config_.kda_num_heads);
  for (size_t i = 0; i < before.size(); ++i) {
    if (i / head != 1) {
      ASSERT_EQ(before[i], after[i]) << i;
    }
  }
  EXPECT_NE(before, after);
}

TEST_F(ALog, ZeroPaddingIsIgnored) {
  const std::vector<float> before = recurrent_state();
  std::vector<float> padded = weights_->at(kName);
  padded.resize(128);
  weights_->set(kName, {128}, padded);
  EXPECT_EQ(recurrent_state(), before);
}

TEST_F(ALog, OtherPaddingAndTooFewHeadsAreRefused) {
  std::vector<float> padded = weights_->at(kName);
  padded.resize(8);
  padded[5] = 1e-30f;
  weights_->set(kName, {8}, padded);
  EXPECT_THAT(message_of([&] { make(kF32); }, ErrorCode::kCorrupt),
              ::testing::AllOf(::testing::HasSubstr(kName), ::testing::HasSubstr("entry 5")));
  weights_->set(kName, {2}, {1, 1});
  EXPECT_THAT(message_of([&] { make(kF32); }, ErrorCode::kCorrupt), ::testing::HasSubstr("2 entries"));
}

// ---- what is refused ----

TEST_F(ModelTest, AWrongShapeIsNamedWithTheKeysItComesFrom) {
  weights_->set("model.layers.3.self_attn.q_b_proj.weight", {3, 20}, std::vector<float>(60));
  EXPECT_THAT(message_of([&] { make({}); }, ErrorCode::kCorrupt),
              ::testing::AllOf(::testing::HasSubstr("model.layers.3.self_attn.q_b_proj"),
                               ::testing::HasSubstr("[3, 20]"), ::testing::HasSubstr("[48, 20]"),
                               ::testing::HasSubstr("num_attention_heads x"), ::testing::HasSubstr("q_lora_rank")));
}

TEST_F(ModelTest, EveryMissingTensorIsNamed) {
  for (const auto& tensor : testing::text_tensors(config_)) {
    const auto weights = random_weights(config_, 7);
    weights->remove(tensor.name);
    EXPECT_THAT(message_of([&] { Model(config_, weights, {}, pool_); }, ErrorCode::kNotFound),
                ::testing::HasSubstr(tensor.name));
  }
}

TEST_F(ModelTest, EveryResizedTensorIsRefused) {
  for (const auto& tensor : testing::text_tensors(config_)) {
    for (size_t axis = 0; axis < tensor.shape.size(); ++axis) {
      if (tensor.name.ends_with("A_log")) continue;  // has its own test
      const auto weights = random_weights(config_, 7);
      Shape shape = tensor.shape;
      ++shape[axis];
      int64_t size = 1;
      for (const int64_t dim : shape) size *= dim;
      weights->set(tensor.name, shape, std::vector<float>(static_cast<size_t>(size)));
      EXPECT_THAT(message_of([&] { Model(config_, weights, {}, pool_); }, ErrorCode::kCorrupt),
                  ::testing::HasSubstr(to_string(shape)));
    }
  }
}

TEST_F(ModelTest, ALayerListThatContradictsTheTensorsIsRefusedByName) {
  std::swap(config_.attention[2], config_.attention[3]);
  EXPECT_THAT(message_of([&] { make({}); }, ErrorCode::kCorrupt),
              ::testing::AllOf(::testing::HasSubstr("layer 2"), ::testing::HasSubstr("f_a_proj"),
                               ::testing::HasSubstr("count from 1")));
  config_ = small_config(5);
  config_.first_k_dense_replace = 2;
  EXPECT_THAT(message_of([&] { make({}); }, ErrorCode::kCorrupt),
              ::testing::AllOf(::testing::HasSubstr("layer 1"), ::testing::HasSubstr("block_sparse_moe.gate")));
  config_.first_k_dense_replace = 0;
  EXPECT_THAT(message_of([&] { make({}); }, ErrorCode::kCorrupt),
              ::testing::AllOf(::testing::HasSubstr("layer 0"), ::testing::HasSubstr("mlp.gate_proj")));
}

TEST_F(ModelTest, IdsOutsideTheVocabularyAreRefused) {
  const Model model = make({});
  SequenceState state = model.new_sequence();
  const std::vector<int32_t> high = {0, static_cast<int32_t>(config_.vocab_size)};
  EXPECT_THAT(message_of([&] { model.forward(high, state); }, ErrorCode::kInvalidArgument),
              ::testing::HasSubstr("token 1"));
  const std::vector<int32_t> negative = {-1};
  message_of([&] { model.forward(negative, state); }, ErrorCode::kInvalidArgument);
}

TEST_F(ModelTest, MoreTokensThanTheContextAreRefused) {
  config_.max_position_embeddings = 5;
  const Model model = make({});
  SequenceState state = model.new_sequence();
  model.forward(std::span(ids_).first(5), state);
  EXPECT_THAT(message_of([&] { model.forward(std::span(ids_).first(1), state); }, ErrorCode::kInvalidArgument),
              ::testing::HasSubstr("max_position_embeddings 5"));
}

TEST_F(ModelTest, ANanInTheLogitsNamesItsPosition) {
  weights_->at("lm_head.weight")[0] = std::numeric_limits<float>::quiet_NaN();
  const Model model = make({});
  SequenceState state = model.new_sequence();
  state.position = 40;
  EXPECT_THAT(message_of([&] { model.forward(std::span(ids_).first(3), state, true); }, ErrorCode::kCorrupt),
              ::testing::AllOf(::testing::HasSubstr("position 42"), ::testing::HasSubstr("id 0")));
}

TEST_F(ModelTest, ANanInTheRouterNamesItsLayer) {
  weights_->at("model.layers.2.block_sparse_moe.gate.weight")[0] = std::numeric_limits<float>::infinity();
  weights_->at("model.layers.2.block_sparse_moe.gate.weight")[1] = std::numeric_limits<float>::quiet_NaN();
  const Model model = make({});
  SequenceState state = model.new_sequence();
  EXPECT_THAT(message_of([&] { model.forward(ids_, state); }, ErrorCode::kCorrupt),
              ::testing::HasSubstr("model.layers.2.block_sparse_moe.gate"));
}

TEST_F(ModelTest, NoTokensGiveNoLogits) {
  const Model model = make({});
  SequenceState state = model.new_sequence();
  EXPECT_TRUE(model.forward({}, state).empty());
  EXPECT_EQ(state.position, 0);
}

}  // namespace
}  // namespace trefoil
