// read_status() of jobs that run, were stopped, are finished, or are none.
#include "trefoil/status.h"

#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <nlohmann/json.hpp>

#include "quantize/crew.h"
#include "support/shard_edit.h"
#include "support/test_support.h"
#include "trefoil/quantize.h"

namespace trefoil {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using testing::TempDir;
using testing::text_dir;
using testing::write_cut_model;
using testing::write_text;

constexpr const char* kJob = ".trefoil-partial/.job";

QuantizeOptions options_for(const TempDir& temp) {
  QuantizeOptions options;
  options.source = temp.path() / "source";
  write_cut_model(options.source, 3, 10);
  options.output = temp.path() / "out";
  options.threads = 2;
  options.calibration = {text_dir() / "calibration.jsonl"};
  options.num_calibration_samples = 4;
  options.max_seq_length = 64;
  options.threads = 1;  // nothing is under way when it reports
  return options;
}

// Looks at the job at its n-th report of progress and stops it there.
class LookAt : public ProgressSink {
 public:
  LookAt(fs::path output, int64_t reports) : output_(std::move(output)), left_(reports) {}
  void update_job(std::string_view, int64_t, int64_t, const ProgressRates& rates) override {
    if (--left_ != 0) return;
    seen = read_status(output_);
    last_rates = rates;
    stop = true;
  }
  std::atomic<bool> stop{false};
  JobStatus seen;
  ProgressRates last_rates;

 private:
  fs::path output_;
  int64_t left_;
};

// What a stopped run looked like from outside at its n-th report.
struct Stopped {
  Stopped(const TempDir& temp, int64_t reports) : options(options_for(temp)), look(options.output, reports) {
    options.stop = &look.stop;
    EXPECT_THROW(quantize(options, &look), Error);
  }
  QuantizeOptions options;
  LookAt look;
};

ErrorCode code_of(const fs::path& output) {
  try {
    read_status(output);
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInvalidArgument;
}

TEST(Status, SeesARunningJob) {
  TempDir temp;
  const Stopped job(temp, 8);
  const JobStatus& status = job.look.seen;
  EXPECT_EQ(status.state, JobState::kRunning);
  ASSERT_THAT(status.workers, SizeIs(1));
  EXPECT_EQ(status.workers[0].name, this_process({}));
  EXPECT_TRUE(status.workers[0].at_work);
  EXPECT_EQ(status.workers[0].units, status.done_units);
  EXPECT_GT(status.done_units, 0);
}

TEST(Status, ARankIsListedOnce) {
  TempDir temp;
  QuantizeOptions options = options_for(temp);
  options.join = true;
  options.place = {0, 2};
  LookAt look(options.output, 8);
  options.stop = &look.stop;
  EXPECT_THROW(quantize(options, &look), Error);
  ASSERT_THAT(look.seen.workers, SizeIs(1));
  EXPECT_EQ(look.seen.workers[0].name, this_process({0, 2}));
  EXPECT_TRUE(look.seen.workers[0].at_work);
  EXPECT_GT(look.seen.workers[0].units, 0);
}

TEST(Status, TellsHowFarAStoppedJobGot) {
  TempDir temp;
  const Stopped job(temp, 8);
  const JobStatus status = read_status(job.options.output);
  EXPECT_EQ(status.state, JobState::kStopped);
  EXPECT_EQ(status.layers, 3);
  EXPECT_EQ(status.done_layers, 1);
  EXPECT_EQ(status.done_units, 7) << "every report but the last was followed by a unit";
  EXPECT_GT(status.units, status.done_units);
  ASSERT_TRUE(status.step);
  EXPECT_THAT(status.step->title, HasSubstr("layer 1 of 0..2: "));
  EXPECT_GT(status.in_layer.size(), 3u);
  EXPECT_GT(status.busy_s, 0);
  ASSERT_TRUE(status.left_s);
  EXPECT_GT(*status.left_s, 0);
  EXPECT_GT(status.done_fraction, 0);
  EXPECT_LT(status.done_fraction, 1);
  EXPECT_THAT(status.last_unit, HasSubstr("L001."));
  EXPECT_TRUE(status.last_finished);
  EXPECT_GT(status.planned_memory_bytes, 0u);
  EXPECT_THAT(to_text(status), HasSubstr("stopped; the same command continues"));
}

TEST(Status, AgreesWithWhatTheJobSaysOfItself) {
  TempDir temp;
  const Stopped job(temp, 12);
  const ProgressRates& rates = job.look.last_rates;
  EXPECT_NEAR(job.look.seen.done_fraction, rates.done_fraction, 1e-9);
  EXPECT_NEAR(*job.look.seen.left_s, rates.left_s, 1e-6);
  EXPECT_GT(rates.resident_bytes, 1u << 20);
  EXPECT_GE(rates.budget_bytes, rates.resident_bytes);
}

TEST(Status, TellsTheBudgetOfThePresentRun) {
  TempDir temp;
  const Stopped job(temp, 8);
  const JobStatus before = read_status(job.options.output);
  QuantizeOptions again = job.options;
  again.memory_bytes = before.budget_bytes - (1u << 20);
  LookAt look(again.output, 2);
  again.stop = &look.stop;
  EXPECT_THROW(quantize(again, &look), Error);
  EXPECT_EQ(look.seen.budget_bytes, again.memory_bytes);
  EXPECT_EQ(read_status(again.output).budget_bytes, again.memory_bytes);
  EXPECT_EQ(read_status(again.output).units, before.units);
}

TEST(Status, LeavesTheJobAsItWas) {
  TempDir temp;
  const Stopped job(temp, 8);
  const fs::path folder = job.options.output / kJob;
  const auto before = fs::last_write_time(folder);
  const std::string lock = testing::read_text(folder / "lock");
  read_status(job.options.output);
  EXPECT_EQ(fs::last_write_time(folder), before);
  EXPECT_EQ(testing::read_text(folder / "lock"), lock);
  QuantizeOptions again = job.options;
  again.stop = nullptr;
  quantize(again);
  const JobStatus finished = read_status(job.options.output);
  EXPECT_EQ(finished.state, JobState::kFinished);
  EXPECT_THAT(to_text(finished), HasSubstr("out: finished"));
  const nlohmann::json json = nlohmann::json::parse(to_json(finished));
  EXPECT_EQ(json.at("done_fraction"), 1.0);
  EXPECT_EQ(json.at("left_s"), 0.0);
  for (const char* gone : {"layers", "done_layers", "units", "done_units", "busy_s", "budget_bytes",
                           "planned_memory_bytes", "planned_scratch_bytes"})
    EXPECT_TRUE(json.at(gone).is_null()) << gone;
}

TEST(Status, PlansExactlyTheUnitsThatAreDone) {
  for (const QuantizeRecipe recipe : {QuantizeRecipe::kTrefoil, QuantizeRecipe::kStock, QuantizeRecipe::kRtn}) {
    TempDir temp;
    QuantizeOptions options = options_for(temp);
    options.recipe = recipe;
    if (recipe == QuantizeRecipe::kRtn) options.calibration.clear();
    // Before the last shard is copied all else is done.
    class LookLate : public ProgressSink {
     public:
      explicit LookLate(fs::path output) : output_(std::move(output)) {}
      void update_job(std::string_view, int64_t done, int64_t total, const ProgressRates&) override {
        if (done + 1 == total) seen = read_status(output_);
      }
      JobStatus seen;

     private:
      fs::path output_;
    } look(options.output);
    quantize(options, &look);
    EXPECT_EQ(look.seen.done_units + 1, look.seen.units) << to_string(recipe);
    EXPECT_EQ(look.seen.done_layers, look.seen.layers);
    EXPECT_EQ(look.seen.step->title, "unchanged tensors");
  }
}

TEST(Status, AFolderWithoutAJobIsNotFound) {
  TempDir temp;
  EXPECT_EQ(code_of(temp.path() / "none"), ErrorCode::kNotFound);
  EXPECT_EQ(code_of(temp.path()), ErrorCode::kNotFound);
  fs::create_directories(temp.path() / kJob);
  write_text(temp.path() / kJob / "lock", "");
  EXPECT_EQ(code_of(temp.path()), ErrorCode::kNotFound) << "it has only just begun";
}

TEST(Status, ADamagedDescriptionIsCorrupt) {
  TempDir temp;
  fs::create_directories(temp.path() / kJob);
  for (const char* text : {"", "{", "[]", "{\"plan\": 3}", "{\"plan\": {\"steps\": [{}]}}", "\xff\xfe"}) {
    write_text(temp.path() / kJob / "job.json", text);
    EXPECT_EQ(code_of(temp.path()), ErrorCode::kCorrupt) << text;
  }
}

TEST(Status, DamagedAndForeignRecordsDoNotCount) {
  TempDir temp;
  const Stopped job(temp, 8);
  const fs::path ledger = job.options.output / kJob / "ledger";
  const int64_t done = read_status(job.options.output).done_units;
  write_text(ledger / "L002.experts.00000.json", "{\"job\": \"x\", \"unit\"");
  write_text(ledger / "L002.experts.00064.json", "");
  write_text(ledger / "L001.nonsense.00000.json", R"({"job":"x","unit":"L001.nonsense.00000","by":"","seconds":1})");
  fs::create_directory(ledger / "L002.experts.00128.json");
  EXPECT_EQ(read_status(job.options.output).done_units, done);
  fs::remove_all(ledger);
  const JobStatus empty = read_status(job.options.output);
  EXPECT_EQ(empty.done_units, 0);
  EXPECT_FALSE(empty.left_s);
  EXPECT_FALSE(empty.last_finished);
}

TEST(Status, AJobOfAnotherMachineIsNotCalledStopped) {
  TempDir temp;
  const Stopped job(temp, 8);
  write_text(job.options.output / kJob / "lock", "another.machine, process 7");
  EXPECT_EQ(read_status(job.options.output).state, JobState::kElsewhere);
}

TEST(Status, JsonHoldsFiniteNumbersOrNull) {
  TempDir temp;
  const Stopped job(temp, 8);
  const nlohmann::json json = nlohmann::json::parse(to_json(read_status(job.options.output)));
  EXPECT_EQ(json.at("state"), "stopped");
  EXPECT_EQ(json.at("done_units"), 7);
  EXPECT_GT(json.at("left_s").get<double>(), 0);
  EXPECT_EQ(json.at("processes").at(0).at("units"), 7);
  EXPECT_GT(json.at("last_finished_unix_s").get<int64_t>(), 1'600'000'000);
  const nlohmann::json finished = nlohmann::json::parse(to_json(JobStatus{}));
  EXPECT_TRUE(finished.at("left_s").is_null());
  EXPECT_TRUE(finished.at("step").is_null());
}

}  // namespace
}  // namespace trefoil
