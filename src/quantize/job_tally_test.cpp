#include "quantize/job_tally.h"

#include <gmock/gmock.h>

#include "base/error.h"

namespace trefoil {
namespace {

PlannedStep planned(std::string step, StepKind kind, int64_t units, double gflop) {
  return {std::move(step), "title", kind, 1, units, 1000, gflop};
}

TEST(JobTally, KnowsNothingBeforeTheFirstUnit) {
  const JobTally tally({planned("L001.attend-q", StepKind::kAttention, 4, 100)});
  EXPECT_FALSE(tally.left_seconds());
  EXPECT_EQ(tally.done_fraction(), 0);
  EXPECT_EQ(tally.units(), 4);
  EXPECT_EQ(tally.current()->plan.step, "L001.attend-q");
}

TEST(JobTally, EveryKindGoesOnAtItsOwnRate) {
  JobTally tally({planned("L001.attend-q", StepKind::kAttention, 2, 100),
                  planned("L001.experts", StepKind::kExperts, 4, 400),
                  planned("L002.attend-q", StepKind::kAttention, 2, 300)});
  tally.add("L001.attend-q.00000", 5);
  tally.add("L001.attend-q.00001", 5);
  EXPECT_DOUBLE_EQ(*tally.left_seconds(), 70) << "experts at attention's rate, for want of their own";
  tally.add("L001.experts.00000", 1);
  EXPECT_DOUBLE_EQ(*tally.left_seconds(), 30 + 3);
  EXPECT_DOUBLE_EQ(tally.done_fraction(), 11.0 / 44.0);
  const ProgressRates rates = tally.rates_at("L001.experts.00064");
  EXPECT_DOUBLE_EQ(rates.tokens_per_s, 250);
  EXPECT_DOUBLE_EQ(rates.gflop_per_s, 100);
  EXPECT_DOUBLE_EQ(rates.left_s, 33);
}

TEST(JobTally, WhatCountsNoArithmeticDoesNotTellWhatTheRestTakes) {
  JobTally tally(
      {planned("L000.embed", StepKind::kEmbedding, 1, 0), planned("L000.attend-q", StepKind::kAttention, 2, 100)});
  tally.add("L000.embed.00000", 5);
  EXPECT_FALSE(tally.left_seconds());
  EXPECT_EQ(tally.done_fraction(), 0);
}

TEST(JobTally, StepsThatCountNoArithmeticGoByUnits) {
  JobTally tally({planned("L001.experts", StepKind::kExperts, 4, 0), planned("shard", StepKind::kCopying, 3, 0)});
  tally.add("L001.experts.00000", 2);
  EXPECT_DOUBLE_EQ(*tally.left_seconds(), 6) << "nothing is known of copying";
  tally.add("shard.model-00001-of-000003.safetensors", 10);
  EXPECT_DOUBLE_EQ(*tally.left_seconds(), 26);
}

TEST(JobTally, CountsAUnitOnceAndIgnoresStrangers) {
  JobTally tally({planned("L001.experts", StepKind::kExperts, 2, 0)});
  tally.add("L001.experts.00000", 2);
  tally.add("L001.experts.00000", 2);
  tally.add("L009.experts.00000", 2);
  tally.add("", 2);
  EXPECT_EQ(tally.done_units(), 1);
  tally.add("L001.experts.00064", -1);
  EXPECT_EQ(tally.seconds(), 2);
  EXPECT_EQ(tally.current(), nullptr);
  EXPECT_EQ(*tally.left_seconds(), 0);
}

TEST(JobPlan, ComesBackAsItWas) {
  const JobPlan plan{{planned("L001.experts", StepKind::kExperts, 2, 1.5)}, 1, 2, 3};
  const JobPlan back = parse_job_plan(to_json(plan), "f");
  EXPECT_EQ(to_json(back), to_json(plan));
  EXPECT_EQ(back.steps.at(0).kind, StepKind::kExperts);
}

TEST(JobPlan, RefusesWhatItDidNotWrite) {
  const JobPlan plan{{planned("L001.experts", StepKind::kExperts, 2, 1.5)}, 1, 2, 3};
  std::string text = to_json(plan);
  EXPECT_THROW(parse_job_plan(text.substr(0, text.size() - 1), "f"), Error);
  EXPECT_THROW(parse_job_plan("{}", "f"), Error);
  text.replace(text.find("\"units\":2"), 9, "\"units\":-2");
  EXPECT_THROW(parse_job_plan(text, "f"), Error);
  text = to_json(plan);
  text.replace(text.find("\"kind\":\"experts\""), 16, "\"kind\":\"dancing\"");
  EXPECT_THROW(parse_job_plan(text, "f"), Error);
}

}  // namespace
}  // namespace trefoil
