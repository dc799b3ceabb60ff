// Against outputs of the release's own code: a K3 of real depth (93 layers) and tiny widths in f32, whose weights
// follow from their names. Container and weights: docs/testing.md, "Anchors". The file holds one decode step (id 9
// after a prefill of ids 1..8) of layers 0, 1, 3, 12, 91 and 92 and of the head.
//
// TREFOIL_ANCHOR_FILE names another such file and TREFOIL_ANCHOR_SALT its salt.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "base/sha256.h"
#include "kernels/norm.h"
#include "model/attn_res_site.h"
#include "model/decoder_layer.h"
#include "model/golden_test_data.h"
#include "model/synthetic_test_model.h"

namespace trefoil {
namespace {

using testing::argmax;
using testing::relative_error;

// ---- the container ----

class Anchor {
 public:
  explicit Anchor(const std::string& bytes) : bytes_(bytes) {
    if (take(8) != "RIVK3GLD") throw std::runtime_error("not an anchor file");
    for (uint64_t i = 0, count = number(); i < count; ++i) {
      const std::string key = text();
      metadata_[key] = text();
    }
    read_section(floats_);
    read_section(ints_);
    if (at_ != bytes_.size()) throw std::runtime_error("bytes after the last tensor");
  }

  const std::string& metadata(const std::string& key) const { return metadata_.at(key); }
  const std::vector<float>& floats(const std::string& name) const { return floats_.at(name); }
  const std::vector<int64_t>& ints(const std::string& name) const { return ints_.at(name); }
  bool has(const std::string& name) const { return floats_.contains(name); }

 private:
  std::string take(uint64_t size) {
    if (size > bytes_.size() - at_) throw std::runtime_error("anchor file ends early");
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }
  uint64_t number() { return load<uint64_t>(take(8).data()); }
  std::string text() { return take(number()); }

  template <typename T>
  void read_section(std::map<std::string, std::vector<T>>& section) {
    for (uint64_t i = 0, count = number(); i < count; ++i) {
      const std::string name = text();
      const uint64_t dims = number();
      take(8 * dims);
      const uint64_t size = number();
      if (size > bytes_.size()) throw std::runtime_error("impossible size");
      const std::string data = take(size * sizeof(T));
      std::vector<T>& values = section[name];
      values.resize(size);
      std::copy_n(data.data(), data.size(), reinterpret_cast<char*>(values.data()));
    }
  }

  std::string bytes_;
  uint64_t at_ = 0;
  std::map<std::string, std::string> metadata_;
  std::map<std::string, std::vector<float>> floats_;
  std::map<std::string, std::vector<int64_t>> ints_;
};

// ---- the weights ----

// The generator's seed: the first four bytes of sha256("salt/name"), little endian.
uint32_t seed_of(const std::string& salt, const std::string& name) {
  const std::string hex = sha256_hex(as_bytes_of(salt + "/" + name));
  uint32_t seed = 0;
  for (int byte = 3; byte >= 0; --byte) {
    seed = seed << 8 | static_cast<uint32_t>(std::stoul(hex.substr(static_cast<size_t>(2 * byte), 2), nullptr, 16));
  }
  return seed;
}

std::vector<float> anchor_tensor(const std::string& salt, const std::string& name, int64_t size) {
  float low = -0.08f;
  float high = 0.08f;
  const bool a_log = name.ends_with("A_log");
  if (a_log) {
    low = 1, high = 16;
  } else if (name.ends_with("dt_bias")) {
    low = -4, high = 1;
  } else if (name.ends_with("norm.weight")) {
    low = 0.8f, high = 1.2f;
  }
  std::mt19937 generator(seed_of(salt, name));
  std::vector<float> values(static_cast<size_t>(size));
  for (float& value : values) {
    value = static_cast<float>(generator() & 0xFFFFFFu) * 0x1p-24f * (high - low) + low;
    if (a_log) value = std::log(value);
  }
  return values;
}

// ---- the model, run once for all tests ----

struct World {
  Anchor anchor;
  ModelConfig config;
  std::shared_ptr<MemoryWeights> weights;
  ThreadPool pool{2};
  std::unique_ptr<Model> model;
  SequenceState before_decode;  // after the prefill
  std::vector<float> logits;    // of the decode step
  std::vector<LayerTap> taps;
  Runtime runtime;

  World(const fs::path& file, const std::string& salt_override) : anchor(testing::read_text(file)) {
    config = parse_model_config(anchor.metadata("tiny_config"), "tiny_config of " + file.string());
    const std::string salt = salt_override.empty() ? anchor.metadata("salt") : salt_override;
    weights = testing::make_weights(
        config, [&](const std::string& name, int64_t size) { return anchor_tensor(salt, name, size); });
    std::vector<float>& embedding = weights->at("model.embed_tokens.weight");
    const auto pad = embedding.begin() + config.pad_token_id * config.hidden_size;
    std::fill(pad, pad + config.hidden_size, 0.0f);
    model = std::make_unique<Model>(config, weights, ForwardOptions{.numerics = Numerics::kF32}, pool);
    before_decode = model->new_sequence();
    model->forward(std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8}, before_decode, true);
    SequenceState state = before_decode;
    logits = model->forward(std::vector<int32_t>{9}, state, true, &taps);
    runtime = {.rounding = Rounding::kNone, .pool = &pool};
  }
};

class AnchorTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const char* file = std::getenv("TREFOIL_ANCHOR_FILE");
    const char* salt = std::getenv("TREFOIL_ANCHOR_SALT");
    const fs::path path = file != nullptr ? fs::path(file) : testing::fixture("k3-anchor-1.bin");
    if (!path.empty()) world_ = std::make_unique<World>(path, salt != nullptr ? salt : "");
  }
  static void TearDownTestSuite() { world_.reset(); }

  void SetUp() override {
    if (world_ == nullptr) {
      GTEST_SKIP() << "fixture k3-anchor-1.bin is not here (set TREFOIL_FIXTURE_DIR or TREFOIL_ANCHOR_FILE)";
    }
  }

  const std::vector<float>& golden(const std::string& name) const { return world_->anchor.floats(name); }
  std::string layer_name(int64_t layer) const { return "model.layers." + std::to_string(layer) + "."; }

  // The stream a mix of the file starts from.
  ResidualStream stream_at(const std::string& mix) const {
    ResidualStream stream{
        .tokens = 1, .hidden = world_->config.hidden_size, .prefix = golden(mix + ".in.prefix_sum"), .stack = {}};
    const std::vector<float>& blocks = golden(mix + ".in.block_residual");
    for (auto block = blocks.begin(); block != blocks.end(); block += stream.hidden) {
      stream.stack.emplace_back(block, block + stream.hidden);
    }
    return stream;
  }

  static std::unique_ptr<World> world_;
};

std::unique_ptr<World> AnchorTest::world_;

constexpr int64_t kCaptured[] = {0, 1, 3, 12, 91, 92};

// The tolerances the file was published with, per operator, as max abs difference over max abs reference.
constexpr float kAttnRes = 1.6e-4f;
constexpr float kMoeLatent = 2.9e-4f;
constexpr float kMoeRoute = 2.5e-4f;
constexpr float kKda = 6.3e-4f;
constexpr float kDenseMlp = 9.4e-6f;

TEST_F(AnchorTest, LogitsAgreeThroughNinetyThreeLayers) {
  EXPECT_LT(relative_error(world_->logits, golden("logits")), 2e-4f);
  EXPECT_EQ(argmax(world_->logits), argmax(golden("logits")));
}

TEST_F(AnchorTest, EveryCapturedRoutingIsTheSameEndToEnd) {
  for (const int64_t layer : kCaptured) {
    if (!world_->config.is_moe(layer)) continue;
    std::vector<int64_t> expected = world_->anchor.ints(layer_name(layer) + "block_sparse_moe.gate.0");
    std::sort(expected.begin(), expected.end());
    const std::vector<int32_t>& expert = world_->taps[static_cast<size_t>(layer)].routing.expert;
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), expert.begin(), expert.end())) << layer;
  }
}

TEST_F(AnchorTest, AttentionResidualMixes) {
  for (const int64_t layer : kCaptured) {
    const std::string name = layer_name(layer);
    for (const char* site : {"self_attention_res", "mlp_res"}) {
      if (!world_->anchor.has(name + site + ".out")) continue;  // layer 0 has no first mix
      const AttnResSite mix(world_->config, WeightLoader(*world_->weights, name), site);
      const std::vector<float> out = mix.mix(world_->runtime, stream_at(name + site), 0, 1);
      EXPECT_LT(relative_error(out, golden(name + site + ".out")), kAttnRes) << name << site;
    }
    EXPECT_LT(relative_error(world_->model->ffn_input(layer, stream_at(name + "mlp_res")),
                             golden(name + "post_attention_layernorm")),
              kAttnRes);
  }
}

TEST_F(AnchorTest, HeadFromTheFinalMix) {
  const std::vector<float> logits = world_->model->logits(stream_at("model.output_attn_res"), 0, 1);
  EXPECT_LT(relative_error(logits, golden("logits")), kAttnRes);
}

TEST_F(AnchorTest, KdaFromTheCapturedState) {
  const ModelConfig& config = world_->config;
  const int64_t channels = config.kda_num_heads * config.kda_head_dim;
  for (const int64_t layer : kCaptured) {
    if (!config.is_kda(layer)) continue;
    const std::string name = layer_name(layer);
    const KdaLayer kda(config, WeightLoader(*world_->weights, name + "self_attn."));
    LayerState state = kda.new_state();
    state.recurrent = golden(name + "kda.fused_recurrent_kda.in.initial_state");
    // The captured cache is [channels][4], the newest column being this token's.
    const auto history = [&](const std::string& conv, std::vector<float>& rows) {
      const std::vector<float>& cache = golden(name + "self_attn." + conv + ".1");
      for (int64_t tap = 0; tap < 3; ++tap) {
        for (int64_t c = 0; c < channels; ++c) {
          rows[static_cast<size_t>(tap * channels + c)] = cache[static_cast<size_t>(c * 4 + tap)];
        }
      }
    };
    history("q_conv1d", state.conv_q);
    history("k_conv1d", state.conv_k);
    history("v_conv1d", state.conv_v);
    SequenceState unused;
    const SequenceRows rows{&unused, 0, 1};
    LayerState* states[] = {&state};
    const std::vector<float> out =
        kda.forward(world_->runtime, KdaForm::kRecurrent, golden(name + "input_layernorm"), 1, {&rows, 1}, states);
    EXPECT_LT(relative_error(out, golden(name + "self_attn")), kKda) << name;
    // S is stored V-first on both sides; the matrix is square, so only the numbers can tell.
    EXPECT_LT(relative_error(state.recurrent, golden(name + "kda.fused_recurrent_kda.out.state")), 1e-5f) << name;
  }
}

// The file does not hold the latents of the earlier tokens, so they come from this program's prefill.
TEST_F(AnchorTest, MlaOverThePrefilledCache) {
  for (const int64_t layer : kCaptured) {
    if (world_->config.is_kda(layer)) continue;
    const std::string name = layer_name(layer);
    const MlaLayer mla(world_->config, WeightLoader(*world_->weights, name + "self_attn."));
    for (const MlaForm form : {MlaForm::kExpanded, MlaForm::kAbsorbed}) {
      LayerState state = world_->before_decode.layers[static_cast<size_t>(layer)];
      SequenceState unused;
      const SequenceRows rows{&unused, 0, 1};
      LayerState* states[] = {&state};
      const std::vector<float> out =
          mla.forward(world_->runtime, form, golden(name + "input_layernorm"), 1, {&rows, 1}, states);
      EXPECT_LT(relative_error(out, golden(name + "self_attn")), 1e-4f) << name;
    }
  }
}

// Only this operator can tell 1e-6 from rms_norm_eps: the effect on the logits is below their noise.
TEST_F(AnchorTest, TheMlaLatentNormsUseAnEpsilonOfTheirOwn) {
  for (const int64_t layer : kCaptured) {
    if (world_->config.is_kda(layer)) continue;
    const std::string name = layer_name(layer) + "self_attn.";
    const MlaLayer mla(world_->config, WeightLoader(*world_->weights, name));
    const std::vector<float>& h = golden(layer_name(layer) + "input_layernorm");
    EXPECT_LT(relative_error(mla.query_latent(world_->runtime, h, 1), golden(name + "q_a_layernorm")), 1e-6f) << name;
    const std::vector<float> cached = mla.cache_rows(world_->runtime, h, 1);
    const size_t rank = static_cast<size_t>(world_->config.kv_lora_rank);
    EXPECT_LT(relative_error(std::span(cached).first(rank), golden(name + "kv_a_layernorm")), 1e-6f) << name;
    EXPECT_LT(
        relative_error(std::span(cached).subspan(rank), std::span(golden(name + "kv_a_proj_with_mqa")).subspan(rank)),
        1e-6f);

    const std::vector<float>& raw = golden(name + "q_a_proj");
    std::vector<float> with_model_eps(raw.size());
    rms_norm(raw, world_->weights->at(name + "q_a_layernorm.weight"), 1e-5f, Rounding::kNone, with_model_eps);
    EXPECT_GT(relative_error(with_model_eps, golden(name + "q_a_layernorm")), 3e-6f) << name;
  }
}

TEST_F(AnchorTest, DenseMlp) {
  EXPECT_LT(relative_error(world_->model->dense_ffn(0, golden("model.layers.0.post_attention_layernorm"), 1),
                           golden("model.layers.0.mlp")),
            kDenseMlp);
}

TEST_F(AnchorTest, MoeStepByStep) {
  for (const int64_t layer : kCaptured) {
    if (!world_->config.is_moe(layer)) continue;
    const std::string name = layer_name(layer) + "block_sparse_moe";
    const std::vector<float>& h = golden(layer_name(layer) + "post_attention_layernorm");

    const Routing routing = world_->model->route(layer, h, 1);
    const std::vector<int64_t>& chosen = world_->anchor.ints(name + ".gate.0");
    std::map<int64_t, float> expected;  // the file keeps top-k order, routing ascending order
    for (size_t i = 0; i < chosen.size(); ++i) expected[chosen[i]] = golden(name + ".gate.1")[i];
    ASSERT_EQ(routing.expert.size(), expected.size());
    size_t slot = 0;
    for (const auto& [expert, weight] : expected) {
      EXPECT_EQ(routing.expert[slot], expert) << name;
      EXPECT_NEAR(routing.weight[slot], weight, kMoeRoute * weight) << name;
      ++slot;
    }

    const std::vector<float> z = world_->model->latent(layer, h, 1);
    EXPECT_LT(relative_error(z, golden(name + ".routed_expert_down_proj")), kMoeLatent) << name;
    const std::vector<float> sum = world_->model->expert_sum(layer, golden(name + ".routed_expert_down_proj"), routing);
    EXPECT_LT(relative_error(sum, golden(name + ".routed_expert_norm.in")), kMoeLatent) << name;
    const std::vector<float> out = world_->model->moe_finish(layer, h, golden(name + ".routed_expert_norm.in"), 1);
    EXPECT_LT(relative_error(out, golden(name)), kMoeLatent) << name;
  }
}

}  // namespace
}  // namespace trefoil
