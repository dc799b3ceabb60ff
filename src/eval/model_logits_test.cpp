#include "eval/model_logits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "eval/compare.h"
#include "eval/loaded_model.h"
#include "support/test_support.h"

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

TokenTable compare_splits(const EvalText& text, const std::vector<SplitOptions>& splits,
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
  const TokenTable table = compare_splits(text, {}, {.batch_rows = 8, .prefill_chunk = 0}, 2);
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
  const TokenTable one =
      compare_splits(text, {{7, false}, {0, true}, {19, true}}, {.batch_rows = 2, .prefill_chunk = 100}, 1);
  for (const CandidateTokens& candidate : one.candidates) {
    EXPECT_EQ(candidate.nll, one.nll);
    for (const double kld : candidate.kld) EXPECT_EQ(kld, 0.0);
  }
  const TokenTable two = compare_splits(text, {}, {.batch_rows = 3, .prefill_chunk = 0}, 3);
  EXPECT_EQ(one.nll, two.nll);
}

}  // namespace
}  // namespace trefoil
