#include "quantize/job_folder.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/sha256.h"

namespace trefoil {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kCalibrationTokens = "calibration tokens";
constexpr std::string_view kTokenFile = "token";
constexpr auto kPollInterval = std::chrono::milliseconds(100);

// One digest for the headers of all shards (names, shapes and sizes of every tensor) and for when they were changed last:
// their data are not read before the job.
std::string shards_digest(const SourceRecord& source) {
  std::string text;
  for (const ShardRecord& shard : source.shards)
    text += fmt::format("{} {} {} {}\n", shard.file, shard.bytes, shard.modified, shard.header_sha256);
  return sha256_hex(as_bytes_of(text));
}

// Everything in `folder` but `kept`.
void remove_all_but(const fs::path& folder, const fs::path& kept) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path() != kept) fs::remove_all(entry.path());
  }
}

bool is_sha256(const std::string& value) {
  return value.size() == 64 && value.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// The first of `present` that is another in `before`; empty when none is. Hashes are cut to what tells them apart.
std::string first_difference(const Json& before, const JobIdentity& present) {
  for (const auto& [name, value] : present) {
    const std::string earlier = before.value(name, "nothing");
    if (earlier == value) continue;
    const bool is_hash = is_sha256(earlier) && is_sha256(value);
    return fmt::format("{} {}, this one has {}", name, is_hash ? earlier.substr(0, 12) : earlier,
                       is_hash ? value.substr(0, 12) : value);
  }
  return "";
}

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

// The steps stay as the grain on disk cut them; what memory there is for them is this run's.
std::string with_steps_of(const Json& earlier, const std::string& plan) {
  Json present = Json::parse(plan);
  present["steps"] = earlier.at("steps");
  return present.dump();
}

}  // namespace

std::string digest_of(const JobIdentity& identity) {
  std::string text;
  for (const auto& [name, value] : identity) text += fmt::format("{}={}\n", name, value);
  return sha256_hex(as_bytes_of(text));
}

fs::path activation_folder_of(const fs::path& staging, const fs::path& work_dir, const std::string& digest) {
  return work_dir.empty() ? staging / OutputFolder::kJobName / "activations"
                          : work_dir / fmt::format("trefoil-{}", digest.substr(0, 16));
}

JobIdentity identity_of(const QuantizeReport& report) {
  const QuantizeOptions& o = report.options;
  JobIdentity identity = {
      {"recipe", to_string(o.recipe)},
      {"bits", std::to_string(o.num_bits)},
      {"group size", std::to_string(o.group_size)},
      {"layout", o.layout == QuantizeOptions::Layout::kDense ? "dense" : "padded"},
      {"layers", o.layers ? fmt::format("{}:{}", o.layers->begin, o.layers->end) : "all"},
      {"source config", report.source.config_sha256},
      {"source index", report.source.index_sha256},
      {"source shards", shards_digest(report.source)},
      {"trefoil", report.environment.version},
      {"compiler", report.environment.compiler},
      {"instruction set", report.environment.isa},
      {"linear algebra", report.environment.blas},
  };
  if (o.recipe == QuantizeRecipe::kRtn) return identity;
  identity.insert(identity.end(), {{std::string(kCalibrationTokens), report.calibration.token_ids_sha256},
                                   {"tokens in a row", std::to_string(report.calibration.row_length)},
                                   {"numerics", o.numerics == Numerics::kBf16 ? "bf16" : "f32"},
                                   {"dampening-frac", fmt::format("{}", o.dampening_frac)}});
  if (o.recipe == QuantizeRecipe::kStock) {
    identity.emplace_back("stock-zero-mask", o.stock_zero_mask ? "yes" : "no");
    return identity;
  }
  const TrefoilTuning& t = o.tuning;
  identity.insert(identity.end(), {{"scales", o.scales == QuantizeOptions::Scales::kAny ? "any" : "positive"},
                                   {"shrinkage", fmt::format("{}", t.shrinkage)},
                                   {"target alpha", fmt::format("{}", t.target_alpha)},
                                   {"refine rounds", std::to_string(t.refine_rounds)},
                                   {"gate weighting", t.gate_weighting ? "yes" : "no"},
                                   {"output metric", t.output_metric ? "yes" : "no"},
                                   {"w2 sequential", t.w2_sequential ? "yes" : "no"}});
  return identity;
}

JobIdentity asked_of(const QuantizeReport& report) {
  const QuantizeOptions& o = report.options;
  if (!report.is_calibrated()) return {};
  std::string files;
  for (const CalibrationSource& source : o.calibration) {
    files += (files.empty() ? "" : " ") + source.file.filename().string();
    if (source.weight) files += fmt::format("={}", *source.weight);
  }
  return {{"--max-seq-length", std::to_string(o.max_seq_length)},
          {"--num-calibration-samples", std::to_string(o.num_calibration_samples)},
          {"--seed", std::to_string(o.seed)},
          {"--calibration", files}};
}

fs::path job_in(const fs::path& staging) {
  return staging / OutputFolder::kJobName;
}

fs::path lock_of(const fs::path& job) {
  return job / "lock";
}

fs::path ledger_of(const fs::path& job) {
  return job / "ledger";
}

JobPlan read_job_plan(const fs::path& job) {
  const fs::path file = job / kJobFile;
  try {
    return parse_job_plan(Json::parse(read_text_file(file)).at("plan").dump(), file.string());
  } catch (const nlohmann::json::exception& wrong) {
    fail(ErrorCode::kCorrupt, "{}: {}", file.string(), wrong.what());
  }
}

JobFolder::JobFolder(OutputFolder& output, const JobIdentity& identity, const WorkGrain& grain, const JobPlan& plan,
                     const Options& options)
    : folder_(job_in(output.staging())),
      digest_(digest_of(identity)),
      grain_(grain),
      plan_(to_json(plan)),
      asked_(options.asked) {
  make_folder(folder_);
  activations_ = activation_folder_of(output.staging(), options.work_dir, digest_);
  take_lock(options);
  const bool is_new = !fs::exists(folder_ / kJobFile);
  if (is_new) {
    output.check();
    if (options.resume) {
      fail(ErrorCode::kInvalidArgument, "output {}: there is no interrupted run to resume", output.folder().string());
    }
    begin_anew(output, identity);
    return;
  }
  const std::string differs = compare_with_disk(identity);
  if (differs.empty()) {
    take_over_activations(identity);
    if (is_alone_) write(identity);
    return;
  }
  if (!is_alone_) {
    fail(ErrorCode::kInvalidArgument, "output {}: the processes at work on it have {}", output.folder().string(),
         differs);
  }
  if (!options.overwrite) {
    fail(ErrorCode::kInvalidArgument, "output {}: it holds an interrupted run with {}; --overwrite starts again",
         output.folder().string(), differs);
  }
  begin_anew(output, identity);
}

void JobFolder::begin_anew(OutputFolder& output, const JobIdentity& identity) {
  std::error_code ignored;
  if (holds_token(earlier_activations_)) fs::remove_all(earlier_activations_, ignored);
  remove_all_but(output.staging(), folder_);
  remove_all_but(folder_, lock_of(folder_));
  token_ = random_token();
  fs::remove_all(activations_, ignored);
  make_folder(activations_);
  write_text_file(activations_ / kTokenFile, token_);
  write(identity);
}

void JobFolder::take_over_activations(const JobIdentity& identity) {
  needs_audit_ = is_alone_;
  if (holds_token(activations_)) return;
  if (!is_alone_) {
    fail(ErrorCode::kInvalidArgument, "work folder {}: the processes at work have their activations in {}",
         activations_.string(), earlier_activations_.string());
  }
  // Lost, or to be elsewhere from now on: the text goes through the model again.
  std::error_code ignored;
  if (holds_token(earlier_activations_)) fs::remove_all(earlier_activations_, ignored);
  fs::remove_all(activations_, ignored);
  make_folder(activations_);
  write_text_file(activations_ / kTokenFile, token_);
  write(identity);
}

bool JobFolder::holds_token(const fs::path& activations) const {
  if (activations.empty() || token_.empty()) return false;
  try {
    return read_text_file(activations / kTokenFile, 4096) == token_;
  } catch (const Error&) {
    return false;
  }
}

void JobFolder::take_lock(const Options& options) {
  const fs::path file = lock_of(folder_);
  while (true) {
    lock_ = FileLock::acquire(file, FileLock::Mode::kExclusive, options.holder);
    is_alone_ = lock_.has_value();
    if (lock_ && options.is_shared && !lock_->is_real())
      fail(ErrorCode::kUnsupported, "{}: this file system has no locks, so processes cannot join", file.string());
    if (is_alone_) return;
    if (!options.is_shared) {
      fail(ErrorCode::kInvalidArgument, "{}: another process is at work on this output ({}); --join works beside it",
           folder_.parent_path().parent_path().string(), read_text_file(file, 4096));
    }
    lock_ = FileLock::acquire(file, FileLock::Mode::kShared);
    if (lock_ && fs::exists(folder_ / kJobFile)) return;
    lock_.reset();
    if (options.stop != nullptr && options.stop->load())
      fail(ErrorCode::kCancelled, "stopped while waiting for {}", read_text_file(file, 4096));
    std::this_thread::sleep_for(kPollInterval);  // the first one is still looking around
  }
}

void JobFolder::share() {
  if (is_alone_) lock_->share();
}

std::optional<FileLock> JobFolder::claim_finish() const {
  try {
    std::optional<FileLock> claim = FileLock::acquire(folder_ / "finish.claim", FileLock::Mode::kExclusive);
    if (!fs::exists(folder_ / kJobFile)) claim.reset();
    return claim;
  } catch (const Error& gone) {  // with the folder, when the other one is done
    if (gone.code() != ErrorCode::kNotFound) throw;
    return std::nullopt;
  }
}

std::string JobFolder::compare_with_disk(const JobIdentity& identity) {
  const fs::path file = folder_ / kJobFile;
  try {
    const Json job = Json::parse(read_text_file(file));
    token_ = job.at("token").get<std::string>();
    earlier_activations_ = job.at("activations").get<std::string>();
    if (const std::string differs = first_difference(job.at("identity"), identity); !differs.empty()) {
      const bool is_of_tokens = differs.starts_with(kCalibrationTokens);
      const std::string asked = is_of_tokens ? first_difference(job.value("asked", Json::object()), asked_) : "";
      return asked.empty() ? differs : asked;
    }
    if (job.at("identity").size() != identity.size()) return "other settings";
    const Json& grain = job.at("grain");
    grain_ = {grain.at(0).get<int64_t>(), grain.at(1).get<int64_t>(), grain.at(2).get<int64_t>()};
    plan_ = with_steps_of(job.at("plan"), plan_);
    return "";
  } catch (const nlohmann::json::exception& wrong) {
    return fmt::format("an unreadable {} ({})", file.string(), wrong.what());
  }
}

void JobFolder::write(const JobIdentity& identity) const {
  const auto object_of = [](const JobIdentity& pairs) {
    Json object = Json::object();
    for (const auto& [name, value] : pairs) object[name] = value;
    return object;
  };
  const Json job = {{"identity", object_of(identity)},
                    {"asked", object_of(asked_)},
                    {"grain", {grain_.unit_rows, grain_.pass_rows, grain_.experts_per_unit}},
                    {"activations", fs::absolute(activations_).string()},
                    {"token", token_},
                    {"plan", Json::parse(plan_)}};
  write_text_file(folder_ / kJobFile, job.dump(1) + "\n");
}

}  // namespace trefoil
