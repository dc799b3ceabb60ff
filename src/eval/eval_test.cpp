#include "trefoil/eval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint.h"
#include "eval/eval_record.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using testing::TempDir;
using testing::tiny_k3_dir;
namespace fs = std::filesystem;

constexpr int64_t kDamagedLayer = 2, kDamagedExpert = 5;

// A copy of tiny-k3 whose expert matrices of one layer have other nibbles: XOR 1 moves a code to its neighbour.
// `one_expert`: only w1 of kDamagedExpert.
void make_damaged(const fs::path& folder, bool one_expert) {
  fs::create_directories(folder);
  for (const fs::directory_entry& entry : fs::directory_iterator(tiny_k3_dir())) {
    fs::copy(entry.path(), folder / entry.path().filename());
  }
  const Checkpoint checkpoint = Checkpoint::open(tiny_k3_dir());
  const std::string layer = "layers." + std::to_string(kDamagedLayer) + ".block_sparse_moe.experts.";
  const std::string only = layer + std::to_string(kDamagedExpert) + ".w1.weight_packed";
  int64_t changed = 0;
  for (const TensorRef& tensor : checkpoint.tensors()) {
    const std::string& name = tensor.info.name;
    if (name.find(one_expert ? only : layer) == std::string::npos || !name.ends_with("weight_packed")) continue;
    ++changed;
    std::vector<std::byte> bytes = checkpoint.read_all(tensor);
    for (std::byte& byte : bytes) byte ^= std::byte{0x11};
    std::fstream file(folder / checkpoint.shards()[tensor.shard], std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(checkpoint.header(tensor.shard).data_start + tensor.info.begin));
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    ASSERT_TRUE(file.good());
  }
  ASSERT_EQ(changed, one_expert ? 1 : 3 * 32);
}

EvalOptions small_options(const fs::path& candidate, const std::string& label = "candidate") {
  EvalOptions options;
  options.reference.folder = tiny_k3_dir();
  options.candidates = {{label, candidate}};
  options.texts = {testing::text_dir() / "evaluation.jsonl"};
  options.ctx_size = 48;
  options.max_rows = 6;
  options.batch_rows = 3;
  options.noise_rows = 0;
  options.probe_rows = 4;
  options.threads = 2;
  options.bootstrap_replicates = 50;
  return options;
}

ErrorCode code_of(EvalCommand command, const EvalOptions& options, std::string* message = nullptr) {
  try {
    evaluate(command, options);
  } catch (const Error& error) {
    if (message != nullptr) *message = error.what();
    return error.code();
  }
  ADD_FAILURE() << "accepted";
  return ErrorCode::kIo;
}

TEST(Evaluate, AModelAgainstItselfIsExactlyZero) {
  EvalOptions options = small_options(tiny_k3_dir());
  options.noise_rows = 2;
  options.fail_if = {"kld.max>0, top1.agreement<1", "candidate.candidate.ppl.ratio!=1"};
  const EvalReport report = evaluate(EvalCommand::kKld, options);
  EXPECT_EQ(report.number("candidates.candidate.kld.mean"), 0.0);
  EXPECT_EQ(report.number("candidates.candidate.kld.max"), 0.0);
  EXPECT_EQ(report.number("candidates.candidate.top5.agreement"), 1.0);
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.record().checks.size(), 3u);
  // what the kernels promise to be independent of is exactly 0; the other forms and numerics are not
  ASSERT_EQ(report.record().noise.size(), 5u);
  EXPECT_TRUE(report.record().noise[0].exact) << report.record().noise[0].name;
  EXPECT_TRUE(report.record().noise[1].exact) << report.record().noise[1].name;
  EXPECT_GT(report.record().noise[4].kld.value, 1e-7);
  EXPECT_LT(report.record().noise[4].kld.value, 1e-2);
  EXPECT_LT(report.record().noise[2].kld.value, 1e-6);
  EXPECT_LT(report.record().noise[3].kld.value, 1e-6);
}

TEST(Evaluate, KernelModesAreRowsOfTheNoiseFloor) {
  EvalOptions options = small_options(tiny_k3_dir());
  options.noise_rows = 2;
  options.numerics = EvalOptions::Numerics::kBf16;
  options.kernels = KernelMode::kExact;
  const std::vector<NoiseSummary> noise = evaluate(EvalCommand::kKld, options).record().noise;
  ASSERT_EQ(noise.size(), 8u);
  EXPECT_TRUE(noise[0].exact) << noise[0].name;
  EXPECT_TRUE(noise[1].exact) << noise[1].name;
  EXPECT_EQ(noise[5].name, "kernels_fast16");
  EXPECT_EQ(noise[6].name, "kernels_fast8");
  EXPECT_EQ(noise[7].name, "kernels_reference");
  for (size_t i = 5; i < 8; ++i) EXPECT_GT(noise[i].kld.value, 0) << noise[i].name << " changed nothing";
  EXPECT_LT(noise[5].kld.value, 1e-2);
  EXPECT_LT(noise[6].kld.value, 3e-2);
  options.numerics = EvalOptions::Numerics::kF32;
  EXPECT_THROW(evaluate(EvalCommand::kKld, options), Error);
}

TEST(Evaluate, APlantedPerturbationIsSeenAndLocated) {
  TempDir temp;
  make_damaged(temp.path() / "one", true);
  make_damaged(temp.path() / "layer", false);
  EvalOptions options = small_options(temp.path() / "one", "one");
  options.candidates.push_back({"layer", temp.path() / "layer"});
  options.with_probes = true;
  const EvalReport report = evaluate(EvalCommand::kKld, options);
  const double one = report.number("candidates.one.kld.mean").value();
  const double layer = report.number("candidates.layer.kld.mean").value();
  EXPECT_GT(one, 0);
  EXPECT_GT(layer, 5 * one);
  EXPECT_NEAR(report.number("pairs.layer/one.kld_ratio").value(), layer / one, 1e-9 * layer / one);

  const ProbeSummary& probe = report.record().probes[0];
  // A: the damage is in w1 of one layer
  EXPECT_GT(probe.weights[0].relative_rms, 0);
  EXPECT_EQ(probe.weights[1].relative_rms, 0);
  EXPECT_EQ(probe.weights[2].relative_rms, 0);
  EXPECT_EQ(probe.weights[0].matrices, 4 * 32);
  for (size_t l = 0; l < probe.layers.size(); ++l) {
    EXPECT_EQ(probe.weights[0].relative_rms_by_layer[l] > 0, probe.layers[l] == kDamagedLayer);
  }
  // B: nothing but w1 of that layer, and what follows from it in that layer
  for (const IsolatedLayerProbe& isolated : probe.isolated) {
    const bool damaged = isolated.layer == kDamagedLayer;
    EXPECT_EQ(isolated.w1.max > 0, damaged) << isolated.layer;
    EXPECT_EQ(isolated.normed_sum.max > 0, damaged) << isolated.layer;
    EXPECT_EQ(isolated.w3.max, 0) << isolated.layer;
    EXPECT_EQ(isolated.expert_sum.count, 4 * 48);
    EXPECT_EQ(isolated.expert_out.count, 4 * 48 * 4);
  }
  // C: no difference before the layer, some from it on
  for (const StreamLayerProbe& stream : probe.stream) {
    EXPECT_EQ(stream.relative_l2 > 0, stream.layer >= kDamagedLayer) << stream.layer;
    if (stream.layer >= 1 && stream.layer <= kDamagedLayer) {
      EXPECT_EQ(stream.topk_overlap.value, 1.0);
      EXPECT_EQ(stream.router_kl.value, 0.0);
    }
  }
  int64_t tokens = 0, experts = 0;
  for (const LoadDecileProbe& decile : probe.load_deciles) tokens += decile.tokens, experts += decile.experts;
  EXPECT_EQ(tokens, 4 * 48 * 4 * 4);  // rows, tokens, experts of a token, layers
  EXPECT_EQ(experts, 4 * 32);
}

TEST(Evaluate, ThreadsAndBatchesDoNotChangeTheReport) {
  TempDir temp;
  make_damaged(temp.path() / "layer", false);
  EvalOptions options = small_options(temp.path() / "layer");
  options.with_probes = true;
  options.max_rows = 3;
  const auto results = [&](int threads) {
    options.threads = threads;
    auto json = nlohmann::json::parse(evaluate(EvalCommand::kKld, options).to_json());
    json.erase("machine");
    return json;
  };
  EXPECT_EQ(results(1), results(3));
}

TEST(Evaluate, PplTakesTheFirstModelAsReferenceWhenNoneIsGiven) {
  EvalOptions options = small_options(tiny_k3_dir(), "only");
  options.reference.folder.clear();
  options.max_rows = 2;
  const EvalReport report = evaluate(EvalCommand::kPpl, options);
  EXPECT_GT(report.number("reference.ppl.value").value(), 5);
  EXPECT_EQ(report.record().models[0].label, "only");
  EXPECT_TRUE(report.record().candidates.empty());
}

TEST(Evaluate, ConditionsAreCheckedBeforeTheRunAndJudgedAfterIt) {
  EvalOptions options = small_options(tiny_k3_dir());
  options.max_rows = 2;
  std::string message;
  options.fail_if = {"kld.meen>0"};
  EXPECT_EQ(code_of(EvalCommand::kKld, options, &message), ErrorCode::kInvalidArgument);
  EXPECT_NE(message.find("kld.meen"), std::string::npos);
  options.fail_if = {"kld.mean>0"};
  EXPECT_EQ(code_of(EvalCommand::kPpl, options), ErrorCode::kInvalidArgument);  // a ppl report has no such number
  options.fail_if = {"ppl.value>1"};
  EXPECT_FALSE(evaluate(EvalCommand::kPpl, options).passed());
  options.fail_if = {"probe.isolated.2.normed_sum.p99>0", "probe.stream.4.topk_overlap<1",
                     "probe.weights.w1.relative_rms>0"};
  EXPECT_TRUE(evaluate(EvalCommand::kProbe, options).passed());
}

TEST(Evaluate, ReportsAreWrittenWhole) {
  TempDir temp;
  EvalOptions options = small_options(tiny_k3_dir());
  options.max_rows = 2;
  options.date = "2030-01-02";
  evaluate(EvalCommand::kKld, options).write(temp.path() / "new/reports");
  const auto json = nlohmann::json::parse(testing::read_text(temp.path() / "new/reports/kld.json"));
  EXPECT_EQ(json["date"], "2030-01-02");
  EXPECT_EQ(json["models"]["candidate"]["folder"], "tiny-k3");
  EXPECT_EQ(json["models"]["candidate"]["experts"], "mxfp4 g32");
  EXPECT_EQ(json["text"]["files"][0]["documents"], 38);
  EXPECT_TRUE(json["models"]["candidate"]["held_out"].get<std::string>().starts_with("unknown"));
  EXPECT_FALSE(testing::read_text(temp.path() / "new/reports/kld.md").empty());
  EXPECT_FALSE(testing::read_text(temp.path() / "new/reports/kld.html").empty());
}

TEST(Evaluate, RefusesWhatMakesNoSense) {
  const EvalOptions good = small_options(tiny_k3_dir());
  EvalOptions options = good;
  options.candidates.push_back(options.candidates[0]);  // the same label twice
  EXPECT_EQ(code_of(EvalCommand::kKld, options), ErrorCode::kInvalidArgument);
  options = good;
  options.reference.folder.clear();
  EXPECT_EQ(code_of(EvalCommand::kKld, options), ErrorCode::kInvalidArgument);
  options = good;
  options.candidates.clear();
  EXPECT_EQ(code_of(EvalCommand::kProbe, options), ErrorCode::kInvalidArgument);
  options = good;
  options.ctx_size = 1;
  EXPECT_EQ(code_of(EvalCommand::kKld, options), ErrorCode::kInvalidArgument);
  options = good;
  options.ctx_size = int64_t{1} << 40;
  EXPECT_EQ(code_of(EvalCommand::kKld, options), ErrorCode::kInvalidArgument);
  options = good;
  options.texts.clear();
  EXPECT_EQ(code_of(EvalCommand::kKld, options), ErrorCode::kInvalidArgument);
  options = good;
  options.candidates[0].folder = testing::text_dir();
  EXPECT_EQ(code_of(EvalCommand::kKld, options), ErrorCode::kNotFound);
}

TEST(Evaluate, StopsWhenAsked) {
  const std::atomic<bool> stop = true;
  EvalOptions options = small_options(tiny_k3_dir());
  options.stop = &stop;
  for (const EvalCommand command : {EvalCommand::kPpl, EvalCommand::kKld, EvalCommand::kProbe}) {
    EXPECT_EQ(code_of(command, options), ErrorCode::kCancelled);
  }
}

TEST(Evaluate, RefusesModelsThatAreNotTheSame) {
  TempDir temp;
  const fs::path folder = temp.path() / "other";
  make_damaged(folder, true);
  std::string config = testing::read_text(folder / "config.json");
  const std::string key = "\"num_experts_per_token\": 4";
  ASSERT_NE(config.find(key), std::string::npos);
  config.replace(config.find(key), key.size(), "\"num_experts_per_token\": 3");
  fs::remove(folder / "config.json");
  testing::write_text(folder / "config.json", config);
  std::string message;
  EXPECT_EQ(code_of(EvalCommand::kKld, small_options(folder), &message), ErrorCode::kInvalidArgument);
  EXPECT_NE(message.find("num_experts_per_token is 3, but original has 4"), std::string::npos) << message;
}

}  // namespace
}  // namespace trefoil
