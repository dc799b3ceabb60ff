#include "checkpoint/linear_storage.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

constexpr const char* kExpert = "language_model.model.layers.1.block_sparse_moe.experts.3.w2";

TEST(LinearStorage, FindsTheBundledModelsExperts) {
  const Checkpoint checkpoint = Checkpoint::open(testing::tiny_k3_dir());
  const StoredLinear linear = resolve_linear(checkpoint, kExpert);
  EXPECT_EQ(linear.format, LinearFormat::kMxfp4);
  EXPECT_EQ(linear.out_features, 128);
  EXPECT_EQ(linear.in_features, 192);
  EXPECT_EQ(linear.group_size, 32);
  std::vector<float> rows(128 * 192);
  decode_linear(checkpoint, linear, 0, 128, rows);
}

}  // namespace
}  // namespace trefoil
