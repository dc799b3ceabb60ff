// The bundled model in every form that kernels read, against the same model decoded.
#include "model/resident_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "model/logits_test_data.h"
#include "model/packed_test_copy.h"

namespace trefoil {
namespace {

using testing::kPromptIds;
using testing::logits_in_chunks;
using testing::same_bits;

std::vector<float> run(const WeightSource& weights, ForwardOptions options, int threads,
                       const std::vector<size_t>& chunks) {
  ThreadPool pool(threads);
  // Not owned: the test's weights outlive the model.
  const std::shared_ptr<const WeightSource> shared(&weights, [](const WeightSource*) {});
  options.mla = MlaForm::kAbsorbed;  // the same arithmetic for one token and many
  const Model model(load_model_config(testing::tiny_k3_dir()), shared, options, pool);
  return logits_in_chunks(model, chunks);
}

// Mean over positions of KL(reference || candidate), nats.
double mean_kld(const std::vector<float>& reference, const std::vector<float>& candidate) {
  const size_t vocab = reference.size() / kPromptIds.size();
  double sum = 0;
  for (size_t begin = 0; begin < reference.size(); begin += vocab) {
    double norm_r = 0, norm_c = 0, kld = 0;
    for (size_t i = begin; i < begin + vocab; ++i) {
      norm_r += std::exp(static_cast<double>(reference[i]));
      norm_c += std::exp(static_cast<double>(candidate[i]));
    }
    for (size_t i = begin; i < begin + vocab; ++i) {
      const double log_r = static_cast<double>(reference[i]) - std::log(norm_r);
      kld += std::exp(log_r) * (log_r - static_cast<double>(candidate[i]) + std::log(norm_c));
    }
    sum += kld;
  }
  return sum / static_cast<double>(kPromptIds.size());
}

class Resident : public ::testing::TestWithParam<int> {  // bits; 0: the bundled MXFP4
 protected:
  Resident() : pool_(2) {
    if (GetParam() == 0) {
      checkpoint_ = testing::open_tiny_k3();
      return;
    }
    testing::write_packed_copy(*testing::open_tiny_k3(), folder_.path(), {.bits = GetParam()});
    checkpoint_ = std::make_shared<const Checkpoint>(Checkpoint::open(folder_.path()));
  }

  testing::TempDir folder_;
  ThreadPool pool_;
  std::shared_ptr<const Checkpoint> checkpoint_;
};

TEST_P(Resident, ReferenceKernelsGiveTheBitsOfTheCheckpoint) {
  const ResidentWeights resident(checkpoint_, {}, pool_);
  const CheckpointWeights stored(checkpoint_);
  for (const Numerics numerics : {Numerics::kF32, Numerics::kBf16}) {
    const ForwardOptions options{.numerics = numerics};
    EXPECT_TRUE(same_bits(run(resident, options, 2, {11}), run(stored, options, 2, {11})));
  }
  EXPECT_GT(resident.report().tile_bytes, 0u);
}

TEST_P(Resident, ChunksAndThreadsDoNotChangeABit) {
  const ResidentWeights resident(checkpoint_, {}, pool_);
  for (const KernelMode mode : {KernelMode::kExact, KernelMode::kFast16, KernelMode::kFast8}) {
    const ForwardOptions options{.kernels = mode};
    const std::vector<float> expected = run(resident, options, 1, {11});
    EXPECT_TRUE(same_bits(run(resident, options, 3, {11}), expected)) << to_string(mode);
    EXPECT_TRUE(same_bits(run(resident, options, 2, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}), expected)) << to_string(mode);
    EXPECT_TRUE(same_bits(run(resident, options, 2, {4, 7}), expected)) << to_string(mode);
  }
}

TEST_P(Resident, ModesStayAsCloseToTheReferenceAsTheirRounding) {
  const ResidentWeights resident(checkpoint_, {}, pool_);
  const std::vector<float> reference = run(resident, {}, 2, {11});
  // bf16 outputs amplify the last bit: exact and fast16 differ from the reference by roundings of equal size.
  const std::pair<KernelMode, double> kBounds[] = {
      {KernelMode::kExact, 2e-3}, {KernelMode::kFast16, 2e-3}, {KernelMode::kFast8, 2e-2}};
  for (const auto& [mode, bound] : kBounds) {
    const double kld = mean_kld(reference, run(resident, {.kernels = mode}, 2, {11}));
    EXPECT_LT(kld, bound) << to_string(mode);
    EXPECT_GT(kld, 0) << to_string(mode) << " ran the reference";
  }
}

TEST_P(Resident, AnInt8TrunkIsReportedAndClose) {
  const ResidentWeights bf16(checkpoint_, {}, pool_), int8(checkpoint_, {.trunk = TrunkForm::kInt8}, pool_);
  const std::vector<float> reference = run(bf16, {.kernels = KernelMode::kExact}, 2, {11});
  const std::vector<float> candidate = run(int8, {.kernels = KernelMode::kExact}, 2, {11});
  EXPECT_LT(int8.report().row_bytes, bf16.report().row_bytes * 3 / 4);
  EXPECT_TRUE(same_bits(candidate, run(int8, {.kernels = KernelMode::kExact}, 1, {3, 1, 7})));
  EXPECT_LT(mean_kld(reference, candidate), 2e-2);
  EXPECT_LT(int8.report().int8_relative_error, 0.01);
  EXPECT_GT(int8.report().int8_relative_error, 1e-4);
  EXPECT_EQ(bf16.report().int8_relative_error, 0);
}

INSTANTIATE_TEST_SUITE_P(Storages, Resident, ::testing::Values(0, 3, 4), [](const auto& storage) {
  return storage.param == 0 ? std::string("Mxfp4") : "Int" + std::to_string(storage.param);
});

TEST(ResidentWeights, LayoutsOfInt3GiveTheSameTiles) {
  const auto source = testing::open_tiny_k3();
  ThreadPool pool(2);
  std::vector<float> logits[2];
  for (const PackedLayout layout : {PackedLayout::kDense, PackedLayout::kPadded}) {
    const testing::TempDir folder;
    testing::write_packed_copy(*source, folder.path(), {.layout = layout});
    const ResidentWeights weights(std::make_shared<const Checkpoint>(Checkpoint::open(folder.path())), {}, pool);
    logits[static_cast<int>(layout)] = run(weights, {.kernels = KernelMode::kExact}, 2, {11});
  }
  EXPECT_TRUE(same_bits(logits[0], logits[1]));
}

TEST(ResidentWeights, GroupsThatNoTileHoldsAreDecoded) {
  ThreadPool pool(2);
  const testing::TempDir folder;
  testing::write_packed_copy(*testing::open_tiny_k3(), folder.path(), {.group_size = 32});
  const auto checkpoint = std::make_shared<const Checkpoint>(Checkpoint::open(folder.path()));
  const ResidentWeights resident(checkpoint, {}, pool);
  EXPECT_TRUE(same_bits(run(resident, {.kernels = KernelMode::kExact}, 2, {11}),
                        run(CheckpointWeights(checkpoint), {}, 2, {11})));
  EXPECT_EQ(resident.report().tile_bytes, 0u);
  EXPECT_GT(resident.report().stored_bytes, 0u);
}

}  // namespace
}  // namespace trefoil
