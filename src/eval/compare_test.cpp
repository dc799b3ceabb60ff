#include "eval/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "eval/summarize.h"
#include "trefoil/error.h"

namespace trefoil {
namespace {

constexpr int64_t kVocab = 50;

// Logits are a hash of the last two ids and the position, so they depend on the sequence so far but not on how it came.
class FakeModel : public LogitsProvider {
 public:
  explicit FakeModel(std::string label, double noise = 0, int64_t vocab = kVocab)
      : label_(std::move(label)), noise_(noise), vocab_(vocab) {}

  const std::string& label() const override { return label_; }
  int64_t vocab_size() const override { return vocab_; }
  void start(int64_t /*first_row*/, int64_t num_sequences) override {
    seen_.assign(static_cast<size_t>(num_sequences), {});
  }
  void advance(std::span<const std::span<const int32_t>> pieces) override {
    last_.clear();
    for (size_t s = 0; s < pieces.size(); ++s) {
      for (const int32_t id : pieces[s]) {
        seen_[s].push_back(id);
        last_.push_back(seen_[s]);
      }
    }
  }
  std::vector<float> logits(int64_t begin, int64_t count) override {
    std::vector<float> out;
    for (int64_t t = begin; t < begin + count; ++t) {
      const std::vector<int32_t>& seen = last_[static_cast<size_t>(t)];
      const double base = seen.back() * 0.7 + (seen.size() > 1 ? seen[seen.size() - 2] * 0.3 : 0.0);
      for (int64_t v = 0; v < vocab_; ++v) {
        const double clean = 3 * std::sin(base + static_cast<double>(v) * 1.3);
        out.push_back(static_cast<float>(clean + noise_ * std::cos(base * 5 + static_cast<double>(v * v))));
      }
      if (seen.size() == nan_at_) out[out.size() - 1] = std::nanf("");
    }
    return out;
  }
  void break_at(size_t length) { nan_at_ = length; }

 private:
  std::string label_;
  double noise_;
  int64_t vocab_;
  size_t nan_at_ = 0;
  std::vector<std::vector<int32_t>> seen_, last_;
};

EvalText make_text(int64_t rows, int64_t length) {
  EvalText text;
  text.sources = {"even", "odd"};
  for (int64_t r = 0; r < rows; ++r) {
    EvalRow row;
    for (int64_t i = 0; i < length + r % 3; ++i) {
      row.ids.push_back(static_cast<int32_t>((r * 31 + i * 17 + i * i) % kVocab));
      row.source.push_back(static_cast<int32_t>(r % 2));
    }
    text.rows.push_back(row);
  }
  return text;
}

ScoredTokens compare(const EvalText& text, FakeModel reference, std::vector<FakeModel> candidates,
                     const CompareSettings& settings = {}, int threads = 1) {
  std::vector<LogitsProvider*> pointers;
  for (FakeModel& candidate : candidates) pointers.push_back(&candidate);
  ThreadPool pool(threads);
  ProgressSink progress;
  return compare_models(text, reference, pointers, settings, pool, progress);
}

TEST(CompareModels, EqualModelsAreExactlyZeroApart) {
  const ScoredTokens table = compare(make_text(5, 20), FakeModel("r"), {FakeModel("c")});
  EXPECT_EQ(table.tokens(), make_text(5, 20).scored_tokens());
  for (const double kld : table.candidates[0].kld) EXPECT_EQ(kld, 0.0);
  EXPECT_EQ(table.candidates[0].nll, table.nll);
  const NoiseSummary noise = summarize_noise(table, 0);
  EXPECT_TRUE(noise.exact);
  EXPECT_EQ(noise.top1.value, 1.0);
}

TEST(CompareModels, TokenEntriesLineUpWithTheText) {
  const EvalText text = make_text(3, 6);
  const ScoredTokens table = compare(text, FakeModel("r"), {});
  FakeModel model("again");
  size_t entry = 0;
  for (size_t r = 0; r < text.rows.size(); ++r) {
    model.start(0, 1);
    const std::vector<std::span<const int32_t>> piece = {text.rows[r].ids};
    model.advance(piece);
    for (size_t p = 1; p < text.rows[r].ids.size(); ++p, ++entry) {
      EXPECT_EQ(table.row[entry], static_cast<int32_t>(r));
      EXPECT_EQ(table.position[entry], static_cast<int32_t>(p));
      EXPECT_EQ(table.source[entry], static_cast<int32_t>(r % 2));
      const std::vector<float> logits = model.logits(static_cast<int64_t>(p) - 1, 1);
      double sum = 0;
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
      const double nll = std::log(sum) - logits[static_cast<size_t>(text.rows[r].ids[p])];
      EXPECT_NEAR(table.nll[entry], nll, 1e-12);
    }
  }
  EXPECT_EQ(entry, static_cast<size_t>(table.tokens()));
}

TEST(CompareModels, ChunksBatchesAndThreadsChangeNothing) {
  const EvalText text = make_text(7, 23);
  const ScoredTokens one =
      compare(text, FakeModel("r"), {FakeModel("c", 0.3)}, {.batch_rows = 1, .prefill_chunk = 0}, 1);
  const ScoredTokens other =
      compare(text, FakeModel("r"), {FakeModel("c", 0.3)}, {.batch_rows = 4, .prefill_chunk = 5}, 3);
  EXPECT_EQ(one.nll, other.nll);
  EXPECT_EQ(one.candidates[0].kld, other.candidates[0].kld);
  EXPECT_EQ(one.candidates[0].top5, other.candidates[0].top5);
}

TEST(CompareModels, MoreNoiseMeansMoreDivergence) {
  const ScoredTokens table =
      compare(make_text(8, 40), FakeModel("r"), {FakeModel("a", 0.1), FakeModel("b", 0.3), FakeModel("c", 1.0)});
  double last = 0;
  for (size_t c = 0; c < 3; ++c) {
    const double kld = mean_by_row(table.rows(), table.candidates[c].kld).value;
    EXPECT_GT(kld, last);
    last = kld;
  }
  const PairSummary pair = summarize_pair(table, 0, 2);
  EXPECT_GT(pair.kld_ratio.value, 10);
  EXPECT_GT(pair.kld_difference.value, 3 * pair.kld_difference.standard_error);
}

TEST(CompareModels, NanLogitsNameModelRowAndPosition) {
  FakeModel broken("damaged");
  broken.break_at(4);
  try {
    compare(make_text(2, 10), FakeModel("r"), {broken});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
    EXPECT_STREQ(error.what(), "damaged: logit 49 is not finite at row 0 position 3");
  }
}

TEST(CompareModels, RefusesWhatCannotBeScored) {
  EvalText text = make_text(2, 10);
  EXPECT_THROW(compare(text, FakeModel("r"), {FakeModel("c", 0, kVocab + 1)}), Error);
  text.rows[1].ids[3] = kVocab;
  EXPECT_THROW(compare(text, FakeModel("r"), {}), Error);
  text = make_text(1, 1);
  EXPECT_THROW(compare(text, FakeModel("r"), {}), Error);
}

// Four tokens in two rows, numbers that can be added in the head.
ScoredTokens small_table() {
  ScoredTokens table;
  table.num_rows = 2;
  table.row = {0, 0, 1, 1};
  table.source = {0, 1, 0, 1};
  table.position = {1, 2, 1, 20};
  table.nll = {1, 2, 3, 2};
  table.entropy = {1, 2, 3, 4};
  table.candidates.resize(2);
  table.candidates[0] = {
      {1.5, 2, 3.5, 2}, {0.2, 0.4, 0.1, 0.3}, {-0.3, 0.1, -0.1, 0.1}, {1, 1, 0, 1}, {1, 1, 0.6, 0.8}};
  table.candidates[1] = {{1, 2, 3, 2}, {0.1, 0.2, 0.05, 0.15}, {0, 0, 0, 0}, {1, 1, 1, 1}, {1, 1, 1, 1}};
  return table;
}

TEST(Summaries, CandidateByHand) {
  const CandidateSummary s = summarize_candidate(small_table(), 0, "c", {"x", "y"}, {});
  EXPECT_DOUBLE_EQ(s.nll.value, 2.25);
  EXPECT_DOUBLE_EQ(s.ppl.value, std::exp(2.25));
  EXPECT_NEAR(s.nll.standard_error, 0.5, 1e-12);  // row means 1.75, 2.75
  EXPECT_NEAR(s.ppl.standard_error, 0.5 * std::exp(2.25), 1e-12);
  EXPECT_DOUBLE_EQ(s.ln_ppl_ratio.value, 0.25);
  EXPECT_DOUBLE_EQ(s.ln_ppl_ratio.standard_error, 0.0);  // both rows differ by 0.25: pairing removes the rest
  EXPECT_DOUBLE_EQ(s.ppl_ratio.value, std::exp(0.25));
  EXPECT_NEAR(s.kld.value, 0.25, 1e-15);
  EXPECT_NEAR(s.kld.standard_error, 0.05, 1e-12);  // row means 0.3, 0.2
  EXPECT_NEAR(s.kld_quantiles[0].value, 0.25, 1e-15);
  EXPECT_DOUBLE_EQ(s.kld_max, 0.4);
  EXPECT_DOUBLE_EQ(s.top1.value, 0.75);
  EXPECT_NEAR(s.top1.standard_error, 0.25, 1e-12);
  EXPECT_NEAR(s.top5.value, 0.85, 1e-12);
  EXPECT_NEAR(s.delta_p_mean.value, -0.05, 1e-12);
  EXPECT_NEAR(s.delta_p_rms.value, std::sqrt(0.03), 1e-12);                      // (9 + 1 + 1 + 1) / 4 hundredths
  EXPECT_NEAR(s.delta_p_rms.standard_error, 0.02 / std::sqrt(0.03) / 2, 1e-12);  // row means 0.05, 0.01
  ASSERT_EQ(s.by_source.size(), 2u);
  EXPECT_NEAR(s.by_source[0].kld.value, 0.15, 1e-15);
  EXPECT_NEAR(s.by_source[1].kld.value, 0.35, 1e-15);
  ASSERT_EQ(s.by_position.size(), 2u);
  EXPECT_EQ(s.by_position[0].name, "1-15");
  EXPECT_EQ(s.by_position[1].name, "16-20");
  EXPECT_EQ(s.by_position[0].tokens, 3);
  EXPECT_NEAR(s.by_position[1].kld.value, 0.3, 1e-15);
  EXPECT_EQ(s.by_entropy[3].tokens, 1);
  EXPECT_NEAR(s.by_entropy[3].kld.value, 0.3, 1e-15);
}

TEST(Summaries, PairsByHand) {
  const PairSummary pair = summarize_pair(small_table(), 0, 1);
  EXPECT_NEAR(pair.kld_ratio.value, 0.5, 1e-12);
  EXPECT_NEAR(pair.kld_ratio.standard_error, 0.0, 1e-12);  // half in every row
  EXPECT_NEAR(pair.kld_difference.value, -0.125, 1e-12);
  EXPECT_NEAR(pair.kld_difference.standard_error, 0.025, 1e-12);
  EXPECT_NEAR(pair.ln_ppl_difference.value, -0.25, 1e-12);
  EXPECT_NEAR(pair.top1_difference.value, 0.25, 1e-12);
}

TEST(Summaries, PositionBucketsCoverTheRowOnce) {
  EXPECT_THAT(position_bucket_names(2), testing::ElementsAre("1-1"));
  EXPECT_THAT(position_bucket_names(16), testing::ElementsAre("1-15"));
  EXPECT_THAT(position_bucket_names(17), testing::ElementsAre("1-15", "16-16"));
  EXPECT_THAT(position_bucket_names(100), testing::ElementsAre("1-15", "16-31", "32-63", "64-99"));
}

}  // namespace
}  // namespace trefoil
