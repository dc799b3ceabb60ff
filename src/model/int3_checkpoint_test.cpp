// A checkpoint with packed 3-bit experts runs like any other, in both layouts that share the format's name.
#include <gtest/gtest.h>

#include "model/checkpoint_weights.h"
#include "model/packed_test_copy.h"

namespace trefoil {
namespace {

TEST(Int3Checkpoint, BothLayoutsRunAndGiveTheSameBits) {
  const auto source = testing::open_tiny_k3();
  const ModelConfig config = load_model_config(testing::tiny_k3_dir());
  ThreadPool pool(2);
  const std::vector<int32_t> ids = {521, 1342, 1073, 949, 1671, 263, 3028};
  const auto logits_of = [&](std::shared_ptr<const Checkpoint> checkpoint) {
    const Model model(config, std::make_shared<CheckpointWeights>(std::move(checkpoint)), {}, pool);
    SequenceState state = model.new_sequence();
    return model.forward(ids, state);
  };
  const auto int3_logits = [&](PackedLayout layout) {
    const testing::TempDir folder;
    testing::write_packed_copy(*source, folder.path(), {.layout = layout, .group_size = 32});
    return logits_of(std::make_shared<const Checkpoint>(Checkpoint::open(folder.path())));
  };
  const std::vector<float> dense = int3_logits(PackedLayout::kDense);
  EXPECT_EQ(dense, int3_logits(PackedLayout::kPadded));
  const float loss = testing::relative_error(dense, logits_of(source));
  EXPECT_GT(loss, 0.01f);  // three bits do cost something
  EXPECT_LT(loss, 0.7f);   // but it is still that model
}

}  // namespace
}  // namespace trefoil
