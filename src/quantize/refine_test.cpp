#include "quantize/refine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "quantize/refine_group.h"
#include "quantize/solver_test_data.h"

namespace trefoil {
namespace {

using lanes::CodeRange;
using lanes::kLanes;
using solver_test::gaussian;
using solver_test::Problem;

TEST(BlockFactor, MultipliesBackToTheBlock) {
  constexpr int64_t kSize = 24;
  const Problem problem(1, kSize, 60, 1, kSize);
  const BlockFactor factor = factor_block(problem.hessian, kSize);
  for (size_t i = 0; i < kSize; ++i) {
    for (size_t j = 0; j < kSize; ++j) {
      double sum = 0;
      for (size_t k = std::max(i, j); k < kSize; ++k) {
        const double left = i == k ? 1.0 : factor.spread[k * kSize + i],
                     right = j == k ? 1.0 : factor.spread[k * kSize + j];
        sum += left * right * static_cast<double>(factor.pivot[k]);
      }
      const double want =
          problem.hessian[static_cast<size_t>(factor.order[i]) * kSize + static_cast<size_t>(factor.order[j])];
      EXPECT_NEAR(sum, want, 1e-5 * std::abs(problem.hessian[0]) + 1e-5);
    }
    if (i > 0) {
      EXPECT_GE(problem.hessian[static_cast<size_t>(factor.order[i - 1]) * (kSize + 1)],
                problem.hessian[static_cast<size_t>(factor.order[i]) * (kSize + 1)]);
    }
  }
}

// One group that is the whole row, so that a plain quadratic form is the judge; on every instruction set this machine has.
class GroupMovesTest : public ::testing::TestWithParam<Impl<GroupMoves()>> {
 protected:
  static constexpr int64_t kSize = 33;  // no multiple of any batch
  GroupMovesTest() : problem_(kLanes, kSize, 200, 2, kSize), range_(3) {
    if (GetParam().isa > detected_isa()) return;
    moves_ = GetParam().run();
    for (std::vector<float>* values : {&gradient_, &code_, &dequantized_}) values->resize(kSize * kLanes);
    scratch_.resize(static_cast<size_t>(group_scratch_floats(kSize)));
    group_ = {kSize,
              problem_.hessian.data(),
              gradient_.data(),
              code_.data(),
              dequantized_.data(),
              scale_,
              gain_,
              scratch_.data(),
              range_.low,
              range_.high,
              false};
    for (int l = 0; l < kLanes; ++l) {
      scale_[l] = lanes::to_bf16(l % 2 == 0 ? 0.03f : -0.03f);
      for (int64_t j = 0; j < kSize; ++j) {
        const auto at = static_cast<size_t>(j * kLanes + l);
        code_[at] = lanes::quantize(target(l, j) / scale_[l], range_);
        dequantized_[at] = lanes::dequantize(code_[at], scale_[l]);
      }
    }
    for (int64_t j = 0; j < kSize; ++j) {
      for (int l = 0; l < kLanes; ++l)
        gradient_[static_cast<size_t>(j * kLanes + l)] = static_cast<float>(true_gradient(l, j));
    }
    factor_ = factor_block(problem_.hessian, kSize);
  }
  void SetUp() override {
    if (GetParam().isa > detected_isa()) GTEST_SKIP() << "this machine does not run " << to_string(GetParam().isa);
  }

  float target(int lane, int64_t j) const { return problem_.weight[static_cast<size_t>(lane * kSize + j)]; }
  double error(int lane, int64_t j) const {
    return static_cast<double>(target(lane, j)) -
           static_cast<double>(lanes::dequantize(code_[static_cast<size_t>(j * kLanes + lane)], scale_[lane]));
  }
  double true_gradient(int lane, int64_t j) const {
    double sum = 0;
    for (int64_t k = 0; k < kSize; ++k)
      sum += error(lane, k) * static_cast<double>(problem_.hessian[static_cast<size_t>(j * kSize + k)]);
    return sum;
  }
  double loss(int lane) const {
    double sum = 0;
    for (int64_t j = 0; j < kSize; ++j) sum += error(lane, j) * true_gradient(lane, j);
    return sum;
  }
  double total_loss() const {
    double sum = 0;
    for (int l = 0; l < kLanes; ++l) sum += loss(l);
    return sum;
  }
  PairSearch search(const std::vector<float>& factors) const {
    return {factor_.order.data(), factor_.spread.data(), factor_.pivot.data(), factors.data(),
            static_cast<int64_t>(factors.size())};
  }
  // Applies the move and checks that its bookkeeping is true: gain, gradient, dequantized values.
  template <typename Move>
  void check(Move move) {
    double before[kLanes], gain[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      before[l] = loss(l);
      gain[l] = gain_[l];
    }
    EXPECT_TRUE(move());
    for (int l = 0; l < kLanes; ++l) {
      EXPECT_LE(loss(l), before[l] * (1 + 1e-6)) << l;
      EXPECT_NEAR(before[l] - loss(l), gain_[l] - gain[l], 1e-4 * before[l]) << l;
      for (int64_t j = 0; j < kSize; ++j) {
        const auto at = static_cast<size_t>(j * kLanes + l);
        EXPECT_EQ(dequantized_[at], lanes::dequantize(code_[at], scale_[l]));
        EXPECT_NEAR(gradient_[at], true_gradient(l, j), 1e-4);
      }
    }
  }

  Problem problem_;
  CodeRange range_;
  GroupMoves moves_{};
  GroupState group_{};
  BlockFactor factor_;
  std::vector<float> gradient_, code_, dequantized_, scratch_;
  float scale_[kLanes] = {};
  double gain_[kLanes] = {};
};

TEST_P(GroupMovesTest, ScaleUpdateKeepsItsBooks) {
  check([&] { return moves_.update_scale(group_); });
}

TEST_P(GroupMovesTest, CodeDescentKeepsItsBooks) {
  check([&] { return moves_.descend_codes(group_); });
}

TEST_P(GroupMovesTest, PairSearchKeepsItsBooks) {
  for (const std::vector<float>& factors : {std::vector<float>{0.7f}, {0.8f, -0.7f, 1.0f, -1.0f, 1.3f}}) {
    check([&] { return moves_.search_pairs(group_, search(factors)); });
  }
}

TEST_P(GroupMovesTest, PairSearchFindsWhatCoordinateMovesCannot) {
  while (moves_.update_scale(group_) | moves_.descend_codes(group_)) {
  }
  const double stuck = total_loss();
  std::vector<float> factors;
  for (float times = 0.75f; times < 1.3f; times += 0.03f) factors.insert(factors.end(), {times, -times});
  EXPECT_TRUE(moves_.search_pairs(group_, search(factors)));
  EXPECT_LT(total_loss(), 0.95 * stuck);
}

TEST_P(GroupMovesTest, PositiveScalesStayPositive) {
  for (float& scale : scale_) scale = std::abs(scale);
  group_.positive_scales = true;
  const std::vector<float> factors = {0.8f, -0.8f, -1.0f, 1.2f};
  moves_.search_pairs(group_, search(factors));
  moves_.update_scale(group_);
  for (const float scale : scale_) EXPECT_GT(scale, 0.0f);
}

TEST_P(GroupMovesTest, SameBitsAsTheScalarBuild) {
  std::vector<float> factors = {0.8f, -0.7f, 1.0f, -1.0f, 1.3f, 0.9f, -1.2f};
  const auto run = [&](const GroupMoves& moves) {
    moves.search_pairs(group_, search(factors));
    moves.update_scale(group_);
    moves.descend_codes(group_);
  };
  const std::vector<float> gradient = gradient_, code = code_, dequantized = dequantized_;
  float scale[kLanes];
  std::copy_n(scale_, kLanes, scale);
  run(moves_);
  const std::vector<float> gradient_here = gradient_, code_here = code_;
  std::copy(gradient.begin(), gradient.end(), gradient_.begin());
  std::copy(code.begin(), code.end(), code_.begin());
  std::copy(dequantized.begin(), dequantized.end(), dequantized_.begin());
  std::copy_n(scale, kLanes, scale_);
  run(group_moves_scalar());
  EXPECT_EQ(code_, code_here);
  EXPECT_EQ(gradient_, gradient_here);
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, GroupMovesTest, ::testing::ValuesIn(kGroupMoves),
                         [](const auto& each) { return std::string(to_string(each.param.isa)); });

TEST(Refine, PairSearchLowersTheObjectiveOfWholeRows) {
  for (const int64_t tokens : {40, 1000}) {
    const Problem problem(64, 192, tokens, 3);
    SolveOptions options = trefoil_options(0.02);
    options.refine_search_steps = 0;
    const double without = solve(problem.input, problem.hessian, options).objective;
    options.refine_search_steps = 17;
    EXPECT_LT(solve(problem.input, problem.hessian, options).objective, 0.97 * without) << tokens;
  }
}

}  // namespace
}  // namespace trefoil
