#include "eval/model_logits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "eval/compare.h"
#include "eval/loaded_model.h"
#include "support/test_support.h"
#include "trefoil/error.h"

namespace trefoil {
namespace {

using testing::golden_dir;
using testing::read_text;
using testing::tiny_k3_dir;

nlohmann::json perplexity_golden() {
  return nlohmann::json::parse(read_text(golden_dir() / "forward.json")).at("perplexity");
}

EvalText golden_text(size_t rows) {
  EvalText text;
  text.sources = {"golden"};
  const nlohmann::json golden = perplexity_golden();
  for (const nlohmann::json& ids : golden.at("sequences")) {
    if (text.rows.size() == rows) break;
    text.rows.push_back({ids.get<std::vector<int32_t>>(), std::vector<int32_t>(ids.size(), 0)});
  }
  return text;
}

ScoredTokens compare_splits(const EvalText& text, const std::vector<SplitOptions>& splits,
                            const CompareSettings& settings, int threads) {
  ThreadPool pool(threads);
  const LoadedModel loaded = load_for_eval("original", tiny_k3_dir());
  ForwardOptions options;
  options.numerics = Numerics::kF32;
  const std::unique_ptr<Model> model = loaded.make_model(options, pool);
  ModelLogits reference("original", *model);
  std::vector<std::unique_ptr<ModelLogits>> others;
  std::vector<LogitsProvider*> candidates;
  for (const SplitOptions& split : splits) {
    others.push_back(std::make_unique<ModelLogits>("again", *model, split));
    candidates.push_back(others.back().get());
  }
  ProgressSink progress;
  return compare_models(text, reference, candidates, settings, pool, progress);
}

TEST(ModelLogits, PerplexityOfTheGoldenSequences) {
  const nlohmann::json golden = perplexity_golden();
  const EvalText text = golden_text(100);
  const ScoredTokens table = compare_splits(text, {}, {.batch_rows = 8, .prefill_chunk = 0}, 2);
  const std::vector<double> sums = sum_by_row(table.rows(), table.nll);
  const std::vector<double> counts = count_by_row(table.rows());
  for (size_t r = 0; r < text.rows.size(); ++r) {
    EXPECT_NEAR(sums[r] / counts[r], golden.at("mean_nll")[r].get<double>(), 2e-5) << "sequence " << r;
  }
  const double ppl = std::exp(mean_by_row(table.rows(), table.nll).value);
  const double expected = golden.at("ppl").get<double>();
  EXPECT_NEAR(ppl, expected, 2e-5 * expected);
}

TEST(ModelLogits, SplitsBatchesAndThreadsGiveTheSameBits) {
  const EvalText text = golden_text(3);
  const ScoredTokens one =
      compare_splits(text, {{7, false}, {0, true}, {19, true}}, {.batch_rows = 2, .prefill_chunk = 100}, 1);
  for (const CandidateTokens& candidate : one.candidates) {
    EXPECT_EQ(candidate.nll, one.nll);
    for (const double kld : candidate.kld) EXPECT_EQ(kld, 0.0);
  }
  const ScoredTokens two = compare_splits(text, {}, {.batch_rows = 3, .prefill_chunk = 0}, 3);
  EXPECT_EQ(one.nll, two.nll);
}

// A copy of tiny-k3 in which the first value of `tensor` is NaN.
void make_poisoned(const std::filesystem::path& folder, const std::string& tensor) {
  std::filesystem::copy(tiny_k3_dir(), folder);
  const Checkpoint checkpoint = Checkpoint::open(tiny_k3_dir());
  const TensorRef& found = checkpoint.at(tensor);
  ASSERT_EQ(found.info.dtype, DType::kBF16);
  std::fstream file(folder / checkpoint.shards()[found.shard], std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(checkpoint.header(found.shard).data_start + found.info.begin));
  file.write("\xC0\x7F", 2);
  ASSERT_TRUE(file.good());
}

std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(ModelLogits, NanNamesModelRowAndPosition) {
  testing::TempDir temp;
  make_poisoned(temp.path() / "head", "language_model.lm_head.weight");
  ThreadPool pool(1);
  const LoadedModel loaded = load_for_eval("damaged", temp.path() / "head");
  const std::unique_ptr<Model> model = loaded.make_model({}, pool);
  ModelLogits logits("damaged", *model);
  logits.start(7, 2);
  const std::vector<int32_t> first = {5, 6, 7}, second = {8, 9};
  const std::vector<std::span<const int32_t>> pieces = {first, first}, more = {second, second};
  logits.advance(pieces);
  logits.advance(more);
  EXPECT_TRUE(message_of([&] { logits.logits(3, 1); }).starts_with("damaged: row 8 position 4: "));
  EXPECT_TRUE(message_of([&] { logits.logits(1, 2); }).starts_with("damaged: row 7 position 4: "));
}

TEST(ModelLogits, NanOnTheWayNamesModelAndRows) {
  testing::TempDir temp;
  make_poisoned(temp.path() / "embedding", "language_model.model.embed_tokens.weight");
  ThreadPool pool(1);
  const LoadedModel loaded = load_for_eval("damaged", temp.path() / "embedding");
  const std::unique_ptr<Model> model = loaded.make_model({}, pool);
  ModelLogits logits("damaged", *model);
  logits.start(7, 2);
  const std::vector<int32_t> good = {5, 6}, bad = {5, 0};
  const std::vector<std::span<const int32_t>> pieces = {good, bad};
  EXPECT_TRUE(message_of([&] { logits.advance(pieces), logits.logits(0, 4); }).starts_with("damaged: row"));
}

}  // namespace
}  // namespace trefoil
