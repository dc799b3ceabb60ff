#include "trefoil/self_check.h"

#include <gtest/gtest.h>

namespace trefoil {
namespace {

TEST(SelfCheck, MatmulAgreesOnThisMachine) {
  EXPECT_NO_THROW(check_matmul());
}

}  // namespace
}  // namespace trefoil
