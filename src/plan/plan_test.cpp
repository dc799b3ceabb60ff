#include "trefoil/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "plan/machine_fit.h"
#include "plan/plan_test_data.h"

namespace trefoil {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using Verdict = FormFit::Verdict;

PlanOptions tiny_options(PlanTask task = PlanTask::kRun) {
  PlanOptions options;
  options.files.folder = testing::tiny_k3_dir();
  options.task = task;
  return options;
}

const PlannedForm& form(const PlanReport& report, const std::string& name) {
  for (const PlannedForm& candidate : report.forms) {
    if (candidate.name == name) return candidate;
  }
  throw std::runtime_error("no form " + name);
}

const FormFit& fit_of(const PlanReport& report, const std::string& machine, const std::string& form_name) {
  for (const MachineFit& candidate : report.machines) {
    if (candidate.machine != machine) continue;
    for (const FormFit& fit : candidate.forms) {
      if (fit.form == form_name) return fit;
    }
  }
  throw std::runtime_error("no " + form_name + " on " + machine);
}

uint64_t line(const std::vector<PlanLine>& lines, const std::string& name) {
  for (const PlanLine& candidate : lines) {
    if (candidate.name == name) return candidate.bytes;
  }
  throw std::runtime_error("no line " + name);
}

class RealModelPlan : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto config = testing::fixture("kimi-k3-config.json"), index = testing::fixture("kimi-k3-index.json.gz");
    if (config.empty() || index.empty())
      GTEST_SKIP() << "the real config and index are not here (set TREFOIL_FIXTURE_DIR)";
    options_.files.config = config;
    options_.files.index = index;
  }
  PlanOptions options_;
};

// Byte counts of the three ways to store the experts; 1.29 TB, as published, is the padded one.
TEST_F(RealModelPlan, SizesInEveryStorage) {
  const PlanReport report = plan(options_);
  const PlannedForm& source = form(report, "as it is");
  EXPECT_EQ(source.expert_bytes(), 1'446'456'066'048u);
  EXPECT_EQ(source.shape_bytes, 0u);
  EXPECT_EQ(source.total_bytes(), 1'560'860'324'864u);
  EXPECT_DOUBLE_EQ(source.bits_per_weight, 4.25);
  EXPECT_EQ(source.bytes_per_token, 25'829'572'608u + 111'160'730'624u + 14'336u);

  const PlannedForm& dense = form(report, "W3 dense");
  EXPECT_EQ(dense.packed_bytes, 1'021'027'811'328u);
  EXPECT_EQ(dense.scale_bytes, 85'085'650'944u);
  EXPECT_EQ(dense.shape_bytes, 3'956'736u);
  EXPECT_EQ(dense.expert_bytes(), 1'106'117'419'008u);
  EXPECT_EQ(dense.total_bytes(), 1'220'521'677'824u);

  const PlannedForm& padded = form(report, "W3 padded");
  EXPECT_EQ(padded.packed_bytes, 1'091'257'237'504u);
  EXPECT_EQ(padded.expert_bytes(), 1'176'346'845'184u);
  EXPECT_EQ(padded.total_bytes(), 1'290'751'104'000u);

  const PlannedForm& four = form(report, "W4");
  EXPECT_EQ(four.packed_bytes, 1'361'370'415'104u);
  EXPECT_EQ(four.expert_bytes(), 1'446'460'022'784u);
  EXPECT_EQ(four.total_bytes(), 1'560'864'281'600u);
}

TEST_F(RealModelPlan, SequenceState) {
  options_.context = 1'048'576;
  const PlanReport report = plan(options_);
  EXPECT_EQ(line(report.sequence_state, "KDA state"), 434'110'464u);
  EXPECT_EQ(line(report.sequence_state, "convolution history"), 15'261'696u);
  EXPECT_EQ(line(report.sequence_state, "MLA latent cache"), 27ull << 30);
  EXPECT_EQ(report.state_bytes, 449'372'160u + (27ull << 30));
}

TEST_F(RealModelPlan, ThreeBitsDoNotFitEightGpusOf141Gb) {
  const PlanReport report = plan(options_);
  const uint64_t state = 449'372'160 + 32'768u * 27'648;
  for (const char* name : {"as it is", "W3 dense", "W3 padded", "W4"}) {
    const FormFit& fit = fit_of(report, "8x141GB GPU", name);
    EXPECT_EQ(fit.verdict, Verdict::kNo) << name;
    EXPECT_EQ(-fit.margin_bytes, static_cast<int64_t>(form(report, name).total_bytes() + state - 1'128'000'000'000u))
        << name;
    EXPECT_EQ(fit_of(report, "12x141GB GPU", name).verdict, Verdict::kFits) << name;
    EXPECT_EQ(fit_of(report, "16x141GB GPU", name).verdict, Verdict::kFits) << name;
  }
  EXPECT_THAT(fit_of(report, "8x141GB GPU", "W3 padded").why, HasSubstr("164 GB too much"));
  EXPECT_THAT(fit_of(report, "8x141GB GPU", "W3 dense").why, HasSubstr("93.9 GB too much"));
  EXPECT_EQ(fit_of(report, "768GB server", "W3 dense").verdict, Verdict::kStreams);
  EXPECT_EQ(fit_of(report, "1.5TB server", "W3 dense").verdict, Verdict::kFits);
  EXPECT_EQ(fit_of(report, "64GB desktop", "W3 dense").verdict, Verdict::kNo);
}

// Published costs of calibrating with 512 rows of 2,048 tokens.
TEST_F(RealModelPlan, QuantizeArithmetic) {
  options_.task = PlanTask::kQuantize;
  const PlanReport report = plan(options_);
  ASSERT_TRUE(report.quantize.has_value());
  EXPECT_EQ(report.quantize->calibration_tokens, 1'048'576);
  std::map<std::string, double> flop;
  for (const ComputeEstimate& estimate : report.quantize->compute) flop[estimate.name] = estimate.flop;
  EXPECT_NEAR(flop["Hessians"], 6.9e16, 0.05e16);
  EXPECT_NEAR(flop["forward, experts"], 1.0e17, 0.05e17);
  EXPECT_NEAR(flop["factorizations"] + flop["column loops"], 1.75e16, 0.01e16);
  EXPECT_NEAR(flop["forward, not quantized part"] + flop["forward, experts"], 2.2e17, 0.05e17);
  // Nine vectors in bf16 are 135 GB, of two streams; the running sum is there three times while a layer is worked on.
  EXPECT_NEAR(static_cast<double>(line(report.quantize->disk, "scratch")),
              2.0 * (135.3e9 + 2 * 15.03e9 + 7.6e9) - 15.03e9, 1e9)
      << "the first block's sum is one for both";
  EXPECT_EQ(line(report.quantize->disk, "written"), 1'220'521'677'824u);
}

TEST_F(RealModelPlan, QuantizeOnOneBigServerOneSmallAndFour) {
  options_.task = PlanTask::kQuantize;
  options_.gflops_per_core = 50;
  options_.hardware = {"64-core 768GB", "64-core 256GB", "4x768GB 64-core", "64-core 2GB", "8x141GB GPU"};
  const std::vector<QuantizeFit> fits = plan(options_).quantize->machines;
  ASSERT_EQ(fits.size(), 5u) << "this machine and four; quantize does not run on GPUs";
  const QuantizeFit &big = fits[1], &small = fits[2], &four = fits[3];
  EXPECT_TRUE(big.scratch_in_memory);
  EXPECT_FALSE(small.scratch_in_memory);
  EXPECT_GT(small.disk_hours, 10 * big.disk_hours);
  EXPECT_EQ(big.experts_at_once, 64);
  EXPECT_EQ(four.processes, 4);
  EXPECT_NEAR(four.arithmetic_hours, big.arithmetic_hours / 4, 1e-9);
  EXPECT_GT(big.arithmetic_hours, 24);
  EXPECT_LT(big.arithmetic_hours, 24 * 14);
  EXPECT_FALSE(fits[4].fits);
  EXPECT_THAT(fits[4].why, HasSubstr("is the least"));
}

TEST(Plan, TheLeastMemoryIsTheEdgeOfWhatFits) {
  PlanOptions options = tiny_options(PlanTask::kQuantize);
  options.threads = 2;
  options.memory_bytes = plan(options).quantize->least_memory_bytes;
  EXPECT_TRUE(plan(options).quantize->fits_memory);
  EXPECT_LE(plan(options).quantize->peak_memory_bytes, *options.memory_bytes);
  options.memory_bytes = *options.memory_bytes - 1;
  EXPECT_FALSE(plan(options).quantize->fits_memory);
}

TEST(Plan, MemoryDoesNotGrowWithTheText) {
  PlanOptions options = tiny_options(PlanTask::kQuantize);
  options.num_calibration_samples = 64;
  const auto least = [&] { return static_cast<double>(plan(options).quantize->least_memory_bytes); };
  const double before = least();
  options.num_calibration_samples = 64 * 100;
  EXPECT_LT(least(), before * 3) << "ids and token weights grow, activations do not";
}

TEST(Plan, TheBudgetReplacesThisMachinesMemory) {
  PlanOptions options = tiny_options();
  options.memory_bytes = 1000;
  options.hardware = {"2x1GB GPU"};
  const PlanReport report = plan(options);
  ASSERT_EQ(report.machines.size(), 2u);  // named ones replace the common ones
  EXPECT_EQ(report.machines[0].memory_bytes, 1000u);
  EXPECT_EQ(report.machines[0].forms[0].verdict, Verdict::kNo);
  EXPECT_EQ(report.machines[1].memory_bytes, 2'000'000'000u);
  EXPECT_EQ(report.machines[1].forms[0].verdict, Verdict::kFits);
  options.memory_bytes = 1ull << 60;
  EXPECT_THAT(plan(options).notes, Contains(HasSubstr("more than the")));
}

TEST(Plan, AQuantizedCheckpointIsNotListedTwice) {
  const testing::TempDir folder;
  testing::write_quantized_tiny(folder.path(), {.layout = PackedLayout::kPadded});
  PlanOptions options = tiny_options(PlanTask::kQuantize);
  options.files.folder = folder.path();
  const PlanReport report = plan(options);
  ASSERT_EQ(report.forms.size(), 3u);
  EXPECT_EQ(report.forms[0].storage, "int3 padded, group 64");
  EXPECT_EQ(form(report, "W3 dense").total_bytes(), form(plan(tiny_options()), "W3 dense").total_bytes());
  EXPECT_FALSE(report.quantize.has_value());  // it is quantized already
  EXPECT_THAT(report.notes, Contains(HasSubstr("quantize takes MXFP4")));
}

TEST(Plan, RefusesOptionsThatMakeNoSense) {
  const auto refused = [](const std::function<void(PlanOptions&)>& edit) {
    PlanOptions options = tiny_options();
    edit(options);
    EXPECT_THROW(plan(options), Error);
  };
  refused([](PlanOptions& options) { options.context = 0; });
  refused([](PlanOptions& options) { options.sequences = -1; });
  refused([](PlanOptions& options) { options.disk_gb_per_s = 0; });
  refused([](PlanOptions& options) { options.max_seq_length = 1ll << 40; });
  refused([](PlanOptions& options) { options.hardware = {"a big one"}; });
  EXPECT_THROW(parse_plan_task("train"), Error);
  EXPECT_EQ(parse_plan_task("serve"), PlanTask::kServe);
}

TEST(Plan, TextAndJsonSayTheSame) {
  const PlanReport report = plan(tiny_options(PlanTask::kQuantize));
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["forms"][1]["total_bytes"], form(report, "W3 dense").total_bytes());
  EXPECT_THAT(to_text(report), HasSubstr("15,091,456"));
  EXPECT_EQ(json["forms"][1]["total_bytes"], 15'091'456);
}

TEST(Fit, CountsCacheAndDiskWhenExpertsStream) {
  PlannedForm model;
  model.packed_bytes = 1000'000'000'000;
  model.rest_bytes = 100'000'000'000;
  model.bytes_per_token = 120'000'000'000;
  FitNeeds needs{.state_bytes = 1'000'000'000, .routed_per_token = 20'000'000'000, .disk_gb_per_s = 5};
  const FormFit streams = fit(model, parse_machine("601GB server"), needs);
  EXPECT_EQ(streams.verdict, Verdict::kStreams);
  EXPECT_THAT(streams.why,
              HasSubstr("500 GB hold 50 % of the experts; the rest is 10.0 GB of disk per token, 2 s at 5 GB/s"));
  EXPECT_EQ(fit(model, parse_machine("601GB GPU"), needs).verdict, Verdict::kNo);
  EXPECT_EQ(fit(model, parse_machine("1101GB GPU"), needs).verdict, Verdict::kFits);
  EXPECT_EQ(fit(model, parse_machine("1100.9GB GPU"), needs).verdict, Verdict::kNo);
  EXPECT_EQ(fit(model, parse_machine("100GB server"), needs).verdict, Verdict::kNo);
}

}  // namespace
}  // namespace trefoil
