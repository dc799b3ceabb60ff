#include "checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

TEST(Checkpoint, OpensTheBundledModelEitherWay) {
  const Checkpoint mapped = Checkpoint::open(testing::tiny_k3_dir());
  const Checkpoint plain = Checkpoint::open(testing::tiny_k3_dir(), Checkpoint::Access::kRead);
  EXPECT_EQ(mapped.shards().size(), 8u);
  EXPECT_EQ(mapped.total_tensor_bytes(), 16264960u);
  ASSERT_EQ(mapped.tensors().size(), plain.tensors().size());
  for (const TensorRef& tensor : mapped.tensors()) {
    const TensorView view = mapped.view(tensor);
    const std::vector<std::byte> bytes = plain.read_all(plain.at(tensor.info.name));
    ASSERT_TRUE(std::equal(view.data.begin(), view.data.end(), bytes.begin(), bytes.end())) << tensor.info.name;
  }
  EXPECT_THAT(mapped.side_files(), ::testing::Contains("config.json"));
}

}  // namespace
}  // namespace trefoil
