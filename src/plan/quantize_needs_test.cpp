#include "plan/quantize_needs.h"

#include <gtest/gtest.h>

#include "support/test_support.h"

namespace trefoil {
namespace {

QuantizeNeeds needs_of(int64_t rows, int64_t threads) {
  QuantizeNeeds needs;
  needs.rows = rows;
  needs.row_length = 256;
  needs.threads = threads;
  return needs;
}

TEST(QuantizeNeeds, OnlyTheTrefoilRecipeKeepsEffectsAndASharedHessian) {
  const ModelConfig config = load_model_config(testing::tiny_k3_dir());
  QuantizeNeeds trefoil = needs_of(4, 2), stock = trefoil;
  trefoil.has_original_stream = stock.has_original_stream = false;
  stock.is_trefoil = false;
  const auto width = static_cast<uint64_t>(config.routed_expert_hidden_size);
  EXPECT_EQ(scratch_bytes(config, trefoil) - scratch_bytes(config, stock), 4 * 256 * 8 + width * width * 4);
}

TEST(QuantizeNeeds, EveryWorkerGetsSeveralUnitsOfALayerAndAUnitIsSmall) {
  ModelConfig config = load_model_config(testing::tiny_k3_dir());
  config.num_experts = 896;
  for (const int64_t threads : {1, 2, 64, 200}) {
    for (const int64_t processes : {1, 4}) {
      QuantizeNeeds needs = needs_of(4, threads);
      needs.processes = processes;
      const QuantizeCut cut = cut_quantize(config, needs);
      EXPECT_EQ(cut.experts_at_once, threads);
      EXPECT_GE(cut.experts_per_unit, 1);
      EXPECT_LE(cut.experts_per_unit, 2) << "what a kill may cost a thread";
      if (cut.experts_per_unit == 1) continue;
      EXPECT_GE(896 / cut.experts_per_unit, 4 * threads * processes);
    }
  }
}

TEST(QuantizeNeeds, AnExpertsTokensCountUntilTheyAreTakenInBlocks) {
  const ModelConfig config = load_model_config(testing::tiny_k3_dir());
  EXPECT_LT(expert_bytes(config, needs_of(4, 1)), expert_bytes(config, needs_of(64, 1)));
  EXPECT_EQ(expert_bytes(config, needs_of(1 << 12, 1)), expert_bytes(config, needs_of(1 << 20, 1)));
}

}  // namespace
}  // namespace trefoil
