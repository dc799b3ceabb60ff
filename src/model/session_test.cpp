#include "model/session.h"

#include <gtest/gtest.h>

#include <cstring>

#include "model/synthetic_test_model.h"
#include "model/text_model.h"
#include "support/expect_error.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using testing::fails_with;

std::vector<float> copied(std::span<const float> values) {
  return {values.begin(), values.end()};
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

class SmallSession : public ::testing::Test {
 protected:
  explicit SmallSession(std::shared_ptr<const WeightSource> weights = nullptr)
      : pool_(1),
        config_(testing::small_config(5)),
        model_(config_, weights != nullptr ? weights : testing::random_weights(config_, 1), {}, pool_) {}

  Session fresh(std::span<const int32_t> ids) const {
    Session session(model_);
    session.extend(ids);
    return session;
  }

  ThreadPool pool_;
  ModelConfig config_;
  Model model_;
};

class TinySession : public ::testing::TestWithParam<Numerics> {};
INSTANTIATE_TEST_SUITE_P(BothNumerics, TinySession, ::testing::Values(Numerics::kF32, Numerics::kBf16));

TEST_P(TinySession, RestoredEqualsRecomputedAtEverySplit) {
  TextModel text(testing::tiny_k3_dir(), EngineOptions{.numerics = GetParam(), .threads = 1});
  const testing::TempDir folder;
  const std::vector<int32_t> ids = text.tokenizer().encode("The function returns the number of arguments.");
  const std::span<const int32_t> all(ids);
  ASSERT_GT(ids.size(), 6u);
  Session whole(text.model());
  whole.extend(all);
  for (size_t split = 0; split <= ids.size(); ++split) {
    Session first(text.model());
    first.extend(all.first(split));
    save_snapshot(first.snapshot(), text.snapshot_shape(), folder.path() / "state");
    first.extend(all.subspan(split));  // the snapshot does not follow
    Session restored(text.model(), load_snapshot(text.snapshot_shape(), folder.path() / "state"));
    EXPECT_EQ(restored.position(), static_cast<int64_t>(split));
    restored.extend(all.subspan(split));
    EXPECT_TRUE(same_bits(restored.logits(), whole.logits())) << split;
    EXPECT_EQ(restored.ids(), ids);
    const int32_t next = 17;
    restored.extend({&next, 1});
    first.extend({&next, 1});
    EXPECT_TRUE(same_bits(restored.logits(), first.logits())) << split;
  }
}

TEST_F(SmallSession, ChunksDoNotMatterAndAStopEndsBetweenThem) {
  const std::vector<int32_t> ids = testing::random_ids(config_, 10, 4);
  const Session whole = fresh(ids);
  Session chunked(model_);
  std::atomic<bool> stop{false};
  struct StopAfterTwo : ProgressSink {
    std::atomic<bool>* stop = nullptr;
    void update_job(std::string_view, int64_t done, int64_t, const ProgressRates& rates) override {
      EXPECT_EQ(rates.tokens_per_s > 0, done > 0);
      if (done >= 6) *stop = true;
    }
  } sink;
  sink.stop = &stop;
  EXPECT_EQ(chunked.extend(ids, {3, &sink, &stop}), 6);
  EXPECT_EQ(chunked.ids(), std::vector<int32_t>(ids.begin(), ids.begin() + 6));
  stop = false;
  EXPECT_EQ(chunked.extend(std::span(ids).subspan(6), {3, nullptr, &stop}), 4);
  EXPECT_TRUE(same_bits(chunked.logits(), whole.logits()));
}

TEST_F(SmallSession, WhatIsRefusedChangesNothing) {
  const std::vector<int32_t> ids = testing::random_ids(config_, 5, 4);
  Session session = fresh(ids);
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "token 1 of the input is id 61", [&] {
    session.extend(std::vector<int32_t>{3, 61});
  }));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "4092 tokens after 5 exceed max_position_embeddings 4096",
                         [&] { session.extend(std::vector<int32_t>(4092, 1)); }));
  EXPECT_EQ(session.ids(), ids);
  session.extend(std::vector<int32_t>{3});
  std::vector<int32_t> longer = ids;
  longer.push_back(3);
  EXPECT_TRUE(same_bits(session.logits(), fresh(longer).logits()));
}

// Good weights, except for one Linear that fails when it is asked to.
class FailingWeights : public WeightSource {
 public:
  FailingWeights(std::shared_ptr<const WeightSource> weights, const bool* fails) : weights_(weights), fails_(fails) {}
  std::unique_ptr<LinearWeight> linear(std::string_view module, int64_t out, int64_t in) const override {
    auto linear = weights_->linear(module, out, in);
    if (module != "model.layers.2.self_attn.o_proj") return linear;
    return std::make_unique<Failing>(std::move(linear), fails_);
  }
  std::vector<float> vector(std::string_view name, const Shape& shape) const override {
    return weights_->vector(name, shape);
  }

 private:
  class Failing : public LinearWeight {
   public:
    Failing(std::unique_ptr<LinearWeight> inner, const bool* fails)
        : LinearWeight(inner->out_features(), inner->in_features()), inner_(std::move(inner)), fails_(fails) {}
    void decode_rows(int64_t begin, int64_t end, std::span<float> out) const override {
      if (*fails_) throw Error(ErrorCode::kIo, "planted");
      inner_->decode_rows(begin, end, out);
    }

   private:
    std::unique_ptr<LinearWeight> inner_;
    const bool* fails_;
  };
  std::shared_ptr<const WeightSource> weights_;
  const bool* fails_;
};

TEST_F(SmallSession, ASequenceThatFailedHalfwayIsSpent) {
  bool fails = false;
  const auto weights = std::make_shared<FailingWeights>(testing::random_weights(config_, 1), &fails);
  const Model model(config_, weights, {}, pool_);
  Session session(model);
  session.extend(std::vector<int32_t>{1, 2});
  fails = true;
  EXPECT_TRUE(fails_with(ErrorCode::kIo, "planted", [&] { session.extend(std::vector<int32_t>{3}); }));
  fails = false;  // layers 0 and 1 have seen id 3 already
  EXPECT_TRUE(
      fails_with(ErrorCode::kInvalidArgument, "cannot go on", [&] { session.extend(std::vector<int32_t>{3}); }));
  EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, "cannot go on", [&] { session.snapshot(); }));
}

TEST_F(SmallSession, APrefixIsReusedWholeOrNotAtAll) {
  SnapshotStore store(uint64_t{1} << 30);
  const std::vector<int32_t> ids = testing::random_ids(config_, 12, 5);
  const std::span<const int32_t> all(ids);
  EXPECT_TRUE(store.keep(fresh(all.first(4)).snapshot()));
  EXPECT_TRUE(store.keep(fresh(all.first(8)).snapshot()));
  EXPECT_EQ(resume(model_, store, all).position(), 8);
  EXPECT_EQ(resume(model_, store, all.first(8)).position(), 8);
  EXPECT_EQ(resume(model_, store, all.first(7)).position(), 4);
  EXPECT_EQ(resume(model_, store, all.first(3)).position(), 0);

  std::vector<int32_t> other = ids;  // shares six ids with a snapshot of eight: the one of four serves
  other[6] = (other[6] + 1) % 60;
  Session session = resume(model_, store, other);
  EXPECT_EQ(session.position(), 4);
  session.extend(std::span(other).subspan(4));
  EXPECT_TRUE(same_bits(session.logits(), fresh(other).logits()));
  other[1] = (other[1] + 1) % 60;
  EXPECT_EQ(resume(model_, store, other).position(), 0);
}

TEST_F(SmallSession, AnExactHitHasItsLogits) {
  SnapshotStore store(uint64_t{1} << 30);
  const std::vector<int32_t> ids = testing::random_ids(config_, 6, 5);
  store.keep(fresh(ids).snapshot());
  EXPECT_TRUE(same_bits(resume(model_, store, ids).logits(), fresh(ids).logits()));
}

TEST_F(SmallSession, TheStoreStaysWithinItsBudgetAndForgetsTheLeastUsed) {
  const std::vector<int32_t> a = {1, 2}, b = {3, 4}, c = {5, 6};
  const uint64_t one = fresh(a).snapshot().bytes();
  SnapshotStore store(2 * one);
  store.keep(fresh(a).snapshot());
  store.keep(fresh(a).snapshot());
  EXPECT_EQ(store.size(), 1u);
  store.keep(fresh(b).snapshot());
  EXPECT_EQ(store.bytes(), 2 * one);
  EXPECT_NE(store.find(a), nullptr);
  store.keep(fresh(c).snapshot());
  EXPECT_EQ(store.find(b), nullptr);
  EXPECT_NE(store.find(a), nullptr);
  EXPECT_NE(store.find(c), nullptr);
  EXPECT_FALSE(store.keep(fresh(testing::random_ids(config_, 400, 1)).snapshot()));
  EXPECT_EQ(store.size(), 2u);
  EXPECT_FALSE(SnapshotStore(one - 1).keep(fresh(a).snapshot()));
}

TEST_F(SmallSession, ASnapshotOutlivesWhatTheSessionDoesNext) {
  const std::vector<int32_t> ids = {1, 2, 3};
  Session session = fresh(ids);
  const SequenceSnapshot snapshot = session.snapshot();
  const std::vector<float> before = copied(session.logits());
  session.extend(ids);
  EXPECT_TRUE(same_bits(Session(model_, snapshot).logits(), before));
}

}  // namespace
}  // namespace trefoil
