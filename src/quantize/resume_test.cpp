// quantize() that is stopped, killed, damaged or shared ends with the bytes of an undisturbed run.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <atomic>
#include <map>
#include <thread>

#include "base/error.h"
#include "checkpoint/output_folder.h"
#include "support/expect_error.h"
#include "support/shard_edit.h"
#include "support/test_support.h"
#include "trefoil/quantize.h"
#include "trefoil/recode.h"

namespace trefoil {
namespace {

using ::testing::HasSubstr;
using testing::read_text;
using testing::TempDir;
using testing::text_dir;
using testing::write_cut_model;
using testing::write_text;

constexpr const char* kJob = ".trefoil-partial/.job";

QuantizeOptions options_for(const TempDir& temp, const std::string& output) {
  QuantizeOptions options;
  options.source = temp.path() / "source";
  if (!fs::exists(options.source)) write_cut_model(options.source, 3, 10);
  options.output = temp.path() / output;
  options.threads = 2;
  options.calibration = {text_dir() / "calibration.jsonl"};
  options.num_calibration_samples = 4;
  options.max_seq_length = 64;
  options.threads = 2;  // the number of units depends on it
  return options;
}

// Everything but the report, which holds times, and the sums, which hold the report's.
std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const std::string name = entry.path().lexically_relative(folder).string();
    if (entry.is_regular_file() && !name.starts_with("quantization_report.") && name != "SHA256SUMS")
      files[name] = read_text(entry.path());
  }
  return files;
}

// Stops the run at the n-th report of progress.
class StopAt : public ProgressSink {
 public:
  explicit StopAt(int64_t reports) : left_(reports) {}
  void update(std::string_view, int64_t, int64_t) override {
    if (--left_ == 0) stop = true;
  }
  std::atomic<bool> stop{false};

 private:
  int64_t left_;
};

class StopAtStage : public ProgressSink {
 public:
  explicit StopAtStage(std::string stage) : stage_(std::move(stage)) {}
  void update(std::string_view stage, int64_t, int64_t) override {
    if (stage == stage_) stop = true;
  }
  std::atomic<bool> stop{false};

 private:
  std::string stage_;
};

template <typename Sink>
bool run_with(QuantizeOptions options, Sink&& sink) {
  options.stop = &sink.stop;
  try {
    quantize(options, &sink);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled) << error.what();
    return false;
  }
}

// False when the run was stopped before its end.
bool run_until(const QuantizeOptions& options, int64_t reports) {
  return run_with(options, StopAt(reports));
}
bool run_until(const QuantizeOptions& options, const std::string& stage) {
  return run_with(options, StopAtStage(stage));
}

std::string refusal_of(const QuantizeOptions& options) {
  try {
    quantize(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(Resume, StoppedAtEveryUnitAndGoneOnEndsWithTheSameBytes) {
  TempDir temp;
  const QuantizeOptions undisturbed = options_for(temp, "undisturbed");
  quantize(undisturbed);
  for (const int64_t reports : {5, 6, 9}) {
    const QuantizeOptions options = options_for(temp, fmt::format("stopped-{}", reports));
    int runs = 1;
    while (!run_until(options, reports)) {
      ASSERT_FALSE(fs::exists(options.output / "model.safetensors.index.json"));
      ASSERT_LT(++runs, 200) << "no progress";
    }
    EXPECT_GT(runs, 2);
    EXPECT_TRUE(files_of(options.output) == files_of(undisturbed.output)) << reports;
    EXPECT_FALSE(fs::exists(options.output / ".trefoil-partial"));
  }
}

// What may happen to the files of an interrupted run.
struct Damage {
  const char* name;
  void (*plant)(const fs::path& output);
};

void flip_byte(const fs::path& file, uint64_t offset) {
  std::string bytes = read_text(file);
  bytes.at(offset) = static_cast<char>(bytes.at(offset) ^ 1);
  write_text(file, bytes);
}

class DamagedWork : public ::testing::TestWithParam<Damage> {};

TEST_P(DamagedWork, IsDoneAgain) {
  TempDir temp;
  const QuantizeOptions undisturbed = options_for(temp, "undisturbed");
  quantize(undisturbed);
  const QuantizeOptions options = options_for(temp, "damaged");
  ASSERT_FALSE(run_until(options, 35)) << "inside the second MoE layer";
  GetParam().plant(options.output);
  quantize(options);
  EXPECT_TRUE(files_of(options.output) == files_of(undisturbed.output));
}

fs::path first_file_with(const fs::path& folder, const std::string& part) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().find(part) != std::string::npos) return entry.path();
  }
  ADD_FAILURE() << "no " << part << " in " << folder;
  return {};
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, DamagedWork,
    ::testing::Values(
        Damage{
            "FlippedByteInAStagedShard",
            [](const fs::path& out) { flip_byte(out / ".trefoil-partial/model-00002-of-000008.safetensors", 9000); }},
        Damage{"StagedShardGone",
               [](const fs::path& out) { fs::remove(out / ".trefoil-partial/model-00002-of-000008.safetensors"); }},
        Damage{"StagedShardShort",
               [](const fs::path& out) {
                 fs::resize_file(out / ".trefoil-partial/model-00002-of-000008.safetensors", 5000);
               }},
        Damage{"ActivationsGone", [](const fs::path& out) { fs::remove_all(out / kJob / "activations"); }},
        Damage{"FlippedByteInTheStream",
               [](const fs::path& out) { flip_byte(first_file_with(out / kJob / "activations", "q.prefix.002"), 77); }},
        Damage{"FlippedByteInTheFirstStackedSum",
               [](const fs::path& out) { flip_byte(first_file_with(out / kJob / "activations", "q.prefix.000"), 77); }},
        Damage{"RecordGone",
               [](const fs::path& out) { fs::remove(first_file_with(out / kJob / "ledger", "L001.experts")); }},
        Damage{
            "RecordCutShort",
            [](const fs::path& out) { fs::resize_file(first_file_with(out / kJob / "ledger", "L001.experts"), 40); }},
        Damage{"EveryRecordGone", [](const fs::path& out) { fs::remove_all(out / kJob / "ledger"); }}),
    [](const auto& param) { return param.param.name; });

TEST(Resume, AnotherSettingIsRefusedByItsName) {
  TempDir temp;
  QuantizeOptions options = options_for(temp, "out");
  ASSERT_FALSE(run_until(options, 12));
  options.dampening_frac = 0.02;
  EXPECT_THAT(refusal_of(options), HasSubstr("dampening-frac 0.01, this one has 0.02"));
  options = options_for(temp, "out");
  options.max_seq_length = 32;
  EXPECT_THAT(refusal_of(options), HasSubstr("it holds an interrupted run with --max-seq-length 64, this one has 32;"));
  options = options_for(temp, "out");
  options.seed = 7;
  EXPECT_THAT(refusal_of(options), HasSubstr("it holds an interrupted run with --seed 0, this one has 7;"));
  options.overwrite = true;
  quantize(options);
  const QuantizeOptions other = options_for(temp, "out");
  EXPECT_THAT(refusal_of(other), HasSubstr("not empty"));
}

TEST(Resume, ResumeDemandsAnInterruptedRun) {
  TempDir temp;
  QuantizeOptions options = options_for(temp, "out");
  options.resume = true;
  EXPECT_THAT(refusal_of(options), HasSubstr("no interrupted run"));
  EXPECT_FALSE(fs::exists(options.output));
}

TEST(Resume, NeitherTheBudgetNorTheWorkFolderNorThreadsMatter) {
  TempDir temp;
  const QuantizeOptions undisturbed = options_for(temp, "undisturbed");
  quantize(undisturbed);
  QuantizeOptions options = options_for(temp, "out");
  options.work_dir = temp.path() / "work";
  options.memory_bytes = 220ull << 20;
  options.threads = 1;
  ASSERT_FALSE(run_until(options, 20));
  EXPECT_FALSE(fs::is_empty(options.work_dir));
  options.memory_bytes = 0;
  options.threads = 2;
  quantize(options);
  EXPECT_TRUE(files_of(options.output) == files_of(undisturbed.output));
  EXPECT_TRUE(fs::is_empty(options.work_dir)) << "nothing is left behind";
  options.memory_bytes = 1 << 20;
  options.output = temp.path() / "none";
  EXPECT_THROW(quantize(options), Error);
}

TEST(Resume, SeveralProcessesShareAJob) {
  TempDir temp;
  const QuantizeOptions undisturbed = options_for(temp, "undisturbed");
  quantize(undisturbed);
  QuantizeOptions options = options_for(temp, "out");
  options.join = true;
  options.threads = 1;
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i) others.emplace_back([&] { quantize(options); });
  quantize(options);
  for (std::thread& other : others) other.join();
  EXPECT_TRUE(files_of(options.output) == files_of(undisturbed.output));
}

TEST(Resume, AWorkFolderThatIsNotTheJobsIsNotTrusted) {
  TempDir temp;
  const QuantizeOptions undisturbed = options_for(temp, "undisturbed");
  quantize(undisturbed);
  QuantizeOptions options = options_for(temp, "out");
  options.work_dir = temp.path() / "first";
  ASSERT_FALSE(run_until(options, 15));
  options.work_dir = temp.path() / "second";
  quantize(options);
  EXPECT_TRUE(files_of(options.output) == files_of(undisturbed.output));
  EXPECT_TRUE(fs::is_empty(temp.path() / "first")) << "the old activations are taken away";
  EXPECT_TRUE(fs::is_empty(temp.path() / "second"));
}

TEST(Resume, AWorkFolderInsideTheSourceOrTheOutputIsRefused) {
  TempDir temp;
  QuantizeOptions options = options_for(temp, "out");
  for (const fs::path& folder : {options.source / "work", options.output / "work", options.output}) {
    options.work_dir = folder;
    EXPECT_THAT(refusal_of(options), HasSubstr("lies inside"));
  }
}

TEST(Resume, ASmallerBudgetThanTheRunWasCutForIsRefused) {
  TempDir temp;
  QuantizeOptions options = options_for(temp, "out");
  options.num_calibration_samples = 16;
  options.max_seq_length = 256;
  ASSERT_FALSE(run_until(options, 6));
  options.memory_bytes = 201'000'000;  // enough for one row at a time
  try {
    quantize(options);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOverBudget);
    EXPECT_THAT(error.what(), HasSubstr("cut for more memory"));
  }
  options.memory_bytes = 0;
  quantize(options);
}

TEST(Resume, AChangedShardOfTheSourceIsAnotherSource) {
  TempDir temp;
  const QuantizeOptions options = options_for(temp, "out");
  ASSERT_FALSE(run_until(options, 12));
  const fs::path shard = options.source / "model-00002-of-000008.safetensors";
  fs::last_write_time(shard, fs::last_write_time(shard) + std::chrono::seconds(1));
  EXPECT_THAT(refusal_of(options), HasSubstr("source shards"));
}

TEST(Resume, StoppedWhileItHashesTheOutputItLosesNothing) {
  TempDir temp;
  const QuantizeOptions undisturbed = options_for(temp, "undisturbed");
  quantize(undisturbed);
  const QuantizeOptions options = options_for(temp, "out");
  ASSERT_FALSE(run_until(options, "hashing the output"));
  EXPECT_FALSE(fs::exists(options.output / "SHA256SUMS"));
  quantize(options);
  EXPECT_TRUE(files_of(options.output) == files_of(undisturbed.output));
}

TEST(Resume, StoppedWhileItChecksWhatIsThereItForgetsNothing) {
  TempDir temp;
  const QuantizeOptions undisturbed = options_for(temp, "undisturbed");
  quantize(undisturbed);
  const QuantizeOptions options = options_for(temp, "out");
  ASSERT_FALSE(run_until(options, 15));
  const fs::path shard = options.output / ".trefoil-partial/model-00002-of-000008.safetensors";
  flip_byte(shard, fs::file_size(shard) / 8);  // of an expert
  const auto before = files_of(options.output / kJob / "ledger");
  ASSERT_FALSE(run_until(options, "checking what an earlier run finished"));
  EXPECT_TRUE(files_of(options.output / kJob / "ledger") == before);
  quantize(options);
  EXPECT_TRUE(files_of(options.output) == files_of(undisturbed.output));
}

TEST(Resume, AnErrorAfterTheLastUnitLosesNothing) {
  TempDir temp;
  const QuantizeOptions undisturbed = options_for(temp, "undisturbed");
  quantize(undisturbed);
  const QuantizeOptions options = options_for(temp, "out");
  make_folder(options.output / "config.json");  // no file, so no reason to refuse; and nothing can be renamed to it
  EXPECT_THROW(quantize(options), Error);
  EXPECT_TRUE(fs::exists(options.output / kJob / "job.json"));
  fs::remove(options.output / "config.json");
  quantize(options);
  EXPECT_TRUE(files_of(options.output) == files_of(undisturbed.output));
}

TEST(Resume, RecodeDoesNotThrowAJobAway) {
  TempDir temp;
  const QuantizeOptions made = options_for(temp, "made");
  quantize(made);
  const QuantizeOptions options = options_for(temp, "out");
  ASSERT_FALSE(run_until(options, 12));
  RecodeOptions recoding;
  recoding.input = made.output;
  recoding.output = options.output;
  recoding.to = PackedForm::kW4;
  EXPECT_TRUE(testing::fails_with(ErrorCode::kInvalidArgument, "interrupted quantize", [&] { recode(recoding); }));
  quantize(options);
  EXPECT_TRUE(files_of(options.output) == files_of(made.output));
}

TEST(OutputFolder, AKilledPublishIsFinishedByTheNext) {
  TempDir temp;
  const std::vector<std::string> files = {"a.safetensors", "index", "quantization_report.json"};
  const fs::path out = temp.path() / "out";
  {
    OutputFolder output(out, temp.path() / "source", files, false);
    output.begin();
    output.keep();
    for (const std::string& file : files) write_text(output.staging() / file, "new");
    write_text(output.staging() / "publishing", "");
  }
  fs::rename(out / ".trefoil-partial/a.safetensors", out / "a.safetensors");
  OutputFolder output(out, temp.path() / "source", files, false);
  EXPECT_TRUE(output.is_publishing());
  output.begin();
  output.publish("index");
  for (const std::string& file : files) EXPECT_EQ(read_text(out / file), "new");
  EXPECT_FALSE(fs::exists(out / ".trefoil-partial"));
}

}  // namespace
}  // namespace trefoil
