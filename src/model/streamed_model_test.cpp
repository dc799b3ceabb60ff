// The bundled model with its experts read from the drive, against the same model in memory.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "model/logits_test_data.h"
#include "model/packed_test_copy.h"
#include "model/resident_weights.h"
#include "stream/expert_store.h"
#include "stream/faulty_test_backend.h"

namespace trefoil {
namespace {

using testing::kPromptIds;
using testing::logits_in_chunks;
using testing::same_bits;

struct Storage {
  const char* name;
  int bits;  // 0: the bundled MXFP4
  PackedLayout layout = PackedLayout::kDense;
};
// A name without addresses, which differ from run to run.
void PrintTo(const Storage& storage, std::ostream* out) {
  *out << storage.name;
}
constexpr Storage kStorages[] = {{"Mxfp4", 0}, {"Int3Dense", 3}, {"Int3Padded", 3, PackedLayout::kPadded}, {"Int4", 4}};

class Streamed : public ::testing::TestWithParam<Storage> {
 protected:
  Streamed() : config_(load_model_config(testing::tiny_k3_dir())) {
    if (GetParam().bits == 0) {
      checkpoint_ = testing::open_tiny_k3();
    } else {
      testing::write_packed_copy(*testing::open_tiny_k3(), folder_.path(),
                                 {.bits = GetParam().bits, .layout = GetParam().layout});
      checkpoint_ = std::make_shared<const Checkpoint>(Checkpoint::open(folder_.path()));
    }
  }

  // Room for so many experts.
  std::shared_ptr<ExpertStore> store(int64_t slots, DriveReaderOptions reader = {}) const {
    ExpertLayout layout({checkpoint_}, config_);
    const uint64_t budget = layout.summary().slot_bytes * static_cast<uint64_t>(slots);
    return std::make_shared<ExpertStore>(
        std::move(layout), ExpertStoreOptions{.budget_bytes = budget, .wait_limit_seconds = 20, .reader = reader});
  }
  std::vector<float> run(std::shared_ptr<ExpertStore> experts, ForwardOptions options, int threads,
                         const std::vector<size_t>& chunks) const {
    ThreadPool pool(threads);
    options.mla = MlaForm::kAbsorbed;
    const Model model(
        config_,
        std::make_shared<ResidentWeights>(checkpoint_, ResidentWeights::Options{.experts = experts == nullptr}, pool),
        options, pool, experts);
    return logits_in_chunks(model, chunks);
  }

  ModelConfig config_;
  testing::TempDir folder_;
  std::shared_ptr<const Checkpoint> checkpoint_;
};

TEST_P(Streamed, GivesTheBitsOfTheModelInMemory) {
  const std::vector<size_t> kOneByOne(kPromptIds.size(), 1);
  for (const KernelMode mode : {KernelMode::kReference, KernelMode::kExact, KernelMode::kFast8}) {
    const ForwardOptions options{.kernels = mode};
    const std::vector<float> expected = run(nullptr, options, 2, {11});
    for (const int64_t slots : {4, 40, 400}) {
      EXPECT_TRUE(same_bits(run(store(slots), options, 2, {11}), expected)) << to_string(mode) << " slots " << slots;
      EXPECT_TRUE(same_bits(run(store(slots), options, 1, {5, 6}), expected)) << to_string(mode) << " slots " << slots;
      EXPECT_TRUE(same_bits(run(store(slots), options, 3, kOneByOne), expected))
          << to_string(mode) << " slots " << slots;
    }
  }
  const ForwardOptions f32{.numerics = Numerics::kF32};
  EXPECT_TRUE(same_bits(run(store(10), f32, 2, {11}), run(nullptr, f32, 2, {11})));
}

INSTANTIATE_TEST_SUITE_P(Storages, Streamed, ::testing::ValuesIn(kStorages),
                         [](const auto& storage) { return std::string(storage.param.name); });

using StreamedMxfp4 = Streamed;
INSTANTIATE_TEST_SUITE_P(One, StreamedMxfp4, ::testing::Values(kStorages[0]),
                         [](const auto& storage) { return std::string(storage.param.name); });

TEST_P(StreamedMxfp4, SequencesTogetherGiveTheirOwnBitsAndShareReads) {
  ThreadPool pool(2);
  const ForwardOptions options{.mla = MlaForm::kAbsorbed, .kernels = KernelMode::kExact, .lookahead = false};
  const auto weights = std::make_shared<ResidentWeights>(checkpoint_, ResidentWeights::Options{.experts = false}, pool);
  // A budget far below what a step needs: nothing stays, so reads are what the steps ask for.
  const auto alone = store(4), together = store(4);
  const Model one(config_, weights, options, pool, alone), both(config_, weights, options, pool, together);
  SequenceState a = one.new_sequence(), b = one.new_sequence(), c = both.new_sequence(), d = both.new_sequence();
  for (size_t i = 0; i + 1 < kPromptIds.size(); ++i) {
    const std::vector<float> first = one.forward(std::span(kPromptIds).subspan(i, 1), a);
    const std::vector<float> second = one.forward(std::span(kPromptIds).subspan(kPromptIds.size() - 1 - i, 1), b);
    const SequenceTokens tokens[] = {{&c, std::span(kPromptIds).subspan(i, 1)},
                                     {&d, std::span(kPromptIds).subspan(kPromptIds.size() - 1 - i, 1)}};
    const std::vector<float> logits = both.forward(tokens);
    ASSERT_EQ(logits.size(), first.size() + second.size());
    EXPECT_EQ(std::memcmp(logits.data(), first.data(), first.size() * sizeof(float)), 0) << i;
    EXPECT_EQ(std::memcmp(logits.data() + first.size(), second.data(), second.size() * sizeof(float)), 0) << i;
  }
  EXPECT_LT(together->counters().bytes_read, alone->counters().bytes_read);
}

TEST_P(StreamedMxfp4, AFailedReadIsAnErrorAndTheNextTokenRunsAgain) {
  ThreadPool pool(2);
  const ForwardOptions options{.mla = MlaForm::kAbsorbed, .kernels = KernelMode::kExact};
  const auto weights = std::make_shared<ResidentWeights>(checkpoint_, ResidentWeights::Options{.experts = false}, pool);
  const std::vector<float> expected = run(nullptr, options, 2, {11});
  for (const int nth : {0, 3, 11}) {
    testing::FaultyDrive drive;
    const auto experts = store(8, {.make_backend = [&](int depth) { return drive.make(depth); }});
    drive.set_plan([=](int n, const ReadOperation&) { return testing::ReadFault{.error = n == nth ? EIO : 0}; });
    const Model model(config_, weights, options, pool, experts);
    SequenceState state = model.new_sequence();
    try {
      model.forward(kPromptIds, state);
      FAIL() << "read " << nth << " failed and nobody noticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
    }
    SequenceState fresh = model.new_sequence();
    EXPECT_TRUE(same_bits(model.forward(kPromptIds, fresh), expected)) << nth;
  }
}

TEST_P(StreamedMxfp4, ANextLayersGuessBringsWhatIsThenUsed) {
  const auto guessing = store(40), waiting = store(40);
  const std::vector<size_t> kOneByOne(kPromptIds.size(), 1);
  const std::vector<float> expected = run(waiting, {.kernels = KernelMode::kExact, .lookahead = false}, 2, kOneByOne);
  EXPECT_TRUE(same_bits(run(guessing, {.kernels = KernelMode::kExact}, 2, kOneByOne), expected));
  EXPECT_EQ(waiting->counters().hints, 0u);
  const ExpertStoreCounters counters = guessing->counters();
  EXPECT_GT(counters.hints, 0u);
  EXPECT_GT(counters.hinted_hits + counters.late_hits, 0u);
}

}  // namespace
}  // namespace trefoil
