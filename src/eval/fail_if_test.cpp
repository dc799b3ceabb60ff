#include "eval/fail_if.h"

#include <gtest/gtest.h>

#include <cmath>

#include "trefoil/error.h"

namespace trefoil {
namespace {

std::vector<Condition> parse(const std::string& text) {
  return parse_conditions(std::vector<std::string>{text});
}

const std::vector<NamedValue> kValues = {{"candidates.v0.1.kld.mean", 0.06},
                                         {"candidates.v0.1.kld.mean_se", kNoValue},
                                         {"candidates.v0.1.by_source.code.kld.mean", 9},
                                         {"candidates.b.kld.mean", 0.04},
                                         {"noise.chunks.kld.mean", 0}};
const std::vector<std::string> kLabels = {"v0.1", "b"};

std::vector<ConditionResult> check(const std::string& text) {
  return apply_conditions(parse(text), kValues, kLabels);
}

TEST(FailIf, ParsesEveryComparison) {
  for (const char* op : {">", ">=", "<", "<=", "==", "!="}) {
    const std::vector<Condition> c = parse(std::string(" kld.mean ") + op + " -1.5e-3 ");
    ASSERT_EQ(c.size(), 1u);
    EXPECT_EQ(c[0].name, "kld.mean");
    EXPECT_EQ(c[0].op, op);
    EXPECT_DOUBLE_EQ(c[0].bound, -0.0015);
  }
}

TEST(FailIf, SplitsAtCommas) {
  const std::vector<Condition> c = parse("kld.mean>0.05, top1.agreement<+0.9");
  ASSERT_EQ(c.size(), 2u);
  EXPECT_EQ(c[1].text, "top1.agreement<+0.9");
  EXPECT_DOUBLE_EQ(c[1].bound, 0.9);
}

TEST(FailIf, RefusesBadSyntax) {
  for (const char* bad :
       {"", "kld.mean", "kld.mean>", "kld.mean>x", ">0.1", "kld.mean=0.1", "kld.mean>>1", "kld.mean=>1",
        "kld.mean>0.1,", ",", "a<1<2", "kld.mean>nan", "kld.mean>inf", "kld.mean>0.1 x", "a!1", "a>++1"}) {
    try {
      parse(bad);
      ADD_FAILURE() << "accepted '" << bad << "'";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    }
  }
}

TEST(FailIf, AnUnqualifiedNameMeansEveryCandidate) {
  const std::vector<ConditionResult> results = check("kld.mean>0.05");
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].metric, "candidates.v0.1.kld.mean");
  EXPECT_TRUE(results[0].violated);
  EXPECT_FALSE(results[1].violated);
}

TEST(FailIf, AQualifiedNameMeansOne) {
  EXPECT_EQ(check("candidate.b.kld.mean>0.05").size(), 1u);
  EXPECT_EQ(check("candidates.b.kld.mean>=0.04")[0].violated, true);
  EXPECT_EQ(check("candidates.b.kld.mean>0.04")[0].violated, false);
  EXPECT_EQ(check("noise.chunks.kld.mean>0")[0].violated, false);
}

TEST(FailIf, ANumberWithoutValueDoesNotPass) {
  const std::vector<ConditionResult> results = check("kld.mean_se>1");
  ASSERT_EQ(results.size(), 1u);
  EXPECT_TRUE(results[0].violated);
}

TEST(FailIf, UnknownNamesAreRefusedWithTheKnownOnes) {
  try {
    check("kld.maen>1");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("candidates.v0.1.kld.mean"), std::string::npos);
  }
}

}  // namespace
}  // namespace trefoil
