// quantize(): checks everything that can be checked at once, walks the layers, writes, reads back, publishes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "checkpoint/folder_files.h"
#include "checkpoint/output_folder.h"
#include "plan/machine.h"
#include "plan/quantize_needs.h"
#include "quantize/calibration.h"
#include "quantize/job_folder.h"
#include "quantize/job_tally.h"
#include "quantize/layer_records.h"
#include "quantize/linalg.h"
#include "quantize/output_check.h"
#include "quantize/provenance.h"
#include "quantize/recipe.h"
#include "quantize/report.h"
#include "quantize/source_check.h"
#include "quantize/stop.h"
#include "quantize/unit_names.h"
#include "quantize/walk.h"
#include "quantize/walk_audit.h"
#include "trefoil/self_check.h"

namespace trefoil {
namespace {

constexpr int kLikelyProcesses = 4;                    // that join a job, where nobody says how many
constexpr uint64_t kShapeBytes = 2 * sizeof(int64_t);  // weight_shape
constexpr const char* kRecipeFile = "recipe.yaml";

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool holds_nothing(const fs::path& folder) {
  std::error_code error;
  const fs::directory_iterator first(folder, error);
  return error || first == fs::directory_iterator();
}

class QuantizeJob {
 public:
  QuantizeJob(const QuantizeOptions& options, ProgressSink& progress) : options_(options), progress_(progress) {}

  QuantizeSummary run() {
    look_at_source();
    plan_output();
    OutputFolder output(options_.output, options_.source, files_, options_.overwrite);
    load_text();
    cut_work();
    check_work_dir();
    require_space(output);
    if (!options_.dry_run) {
      quantize_into(output);
    }
    QuantizeSummary summary = summarize(report_);
    summary.markdown =
        is_finished_by_other_ ? "another process finishes the output and reports\n" : report_markdown(report_);
    if (!is_finished_by_other_ && !options_.dry_run)
      summary.markdown += resources_markdown(report_) + next_steps_text(report_);
    return summary;
  }

 private:
  bool is_partial() const { return options_.layers.has_value(); }
  std::string last_file() const { return is_partial() ? kReportFile : has_index_ ? kIndexFile : kConfigFile; }

  // Everything about the source that can be wrong, before any work.
  void look_at_source() {
    config_ = load_model_config(options_.source);
    source_ = std::make_shared<const Checkpoint>(Checkpoint::open(options_.source, Checkpoint::Access::kRead));
    has_index_ = fs::exists(options_.source / kIndexFile);
    layers_ = find_routed_experts(*source_, config_);
    check_text_tensors(*source_, config_);
    if (options_.layers) keep_layers(*options_.layers);
  }

  void keep_layers(const QuantizeOptions::LayerRange& range) {
    if (range.end > config_.num_hidden_layers) {
      fail(ErrorCode::kInvalidArgument, "layers {}:{}: the model has layers 0 to {}", range.begin, range.end,
           config_.num_hidden_layers - 1);
    }
    std::erase_if(layers_, [&](const MoeLayer& moe) { return moe.layer < range.begin || moe.layer >= range.end; });
    if (layers_.empty())
      fail(ErrorCode::kInvalidArgument, "layers {}:{}: none of them has routed experts", range.begin, range.end);
  }

  void plan_output() {
    plans_ = plan_shards(*source_, layers_, encoding_of(options_));
    if (is_partial()) std::erase_if(plans_, [](const ShardPlan& plan) { return plan.layers.empty(); });
    for (const ShardPlan& plan : plans_) {
      files_.push_back(plan.file);
      report_.output_tensor_bytes += plan.tensor_bytes();
    }
    if (!is_partial()) {
      side_files_ = side_files_of(options_.source);
      std::erase_if(side_files_, [](const std::string& name) {
        return name == kConfigFile || name == kRecipeFile || name == kReportFile || name == kReportPage ||
               name == kSumsFile;
      });
      files_.insert(files_.end(), side_files_.begin(), side_files_.end());
      card_file_ = contains(side_files_, "README.md") ? "MODEL_CARD.md" : "README.md";
      if (contains(side_files_, card_file_)) card_file_ = "QUANTIZATION.md";
      files_.insert(files_.end(), {kConfigFile, card_file_, kRecipeFile});
      if (has_index_) files_.push_back(kIndexFile);
    }
    files_.insert(files_.end(), {kReportFile, kReportPage, kSumsFile});
    report_.bits_per_weight = bits_per_weight();
  }

  // Of codes, scales and shapes, as plan counts.
  double bits_per_weight() const {
    uint64_t bytes = 0, weights = 0;
    const ExpertEncoding encoding = encoding_of(options_);
    for (const StoredLinear& linear : layers_.front().experts.front().linear) {
      const int64_t row_bytes = packed_words(encoding.num_bits, linear.in_features, encoding.layout) * 4 +
                                linear.in_features / encoding.group_size * 2;
      bytes += static_cast<uint64_t>(linear.out_features * row_bytes) + kShapeBytes;
      weights += static_cast<uint64_t>(linear.out_features * linear.in_features);
    }
    return 8.0 * static_cast<double>(bytes) / static_cast<double>(weights);
  }

  // Tensors, headers, side files, the report and the ledger. A name in a header costs its length and about 100 bytes; a
  // matrix in the report about 400, and its bytes in the ledger as much.
  uint64_t bytes_needed() const {
    uint64_t bytes = report_.output_tensor_bytes + (1u << 20);
    for (const ShardPlan& plan : plans_) {
      bytes += data_alignment(encoding_of(options_).layout);
      for (const ShardTensor& tensor : plan.tensors) bytes += 2 * tensor.plan.name.size() + 1000;
    }
    for (const std::string& name : side_files_) bytes += fs::file_size(options_.source / name);
    for (const auto& row : report_.calibration.rows) bytes += 8 * row.size();
    return bytes;
  }

  void load_text() {
    threads_ = options_.threads > 0 ? options_.threads : usable_cpus();
    linalg_check_room(threads_);
    check_linear_algebra();
    report_.options = options_;
    report_.environment = describe_environment(threads_);
    report_.source = describe_source(*source_);
    report_.latent = config_.routed_expert_hidden_size;
    report_.inner = config_.moe_intermediate_size;
    if (options_.recipe == QuantizeRecipe::kRtn) return;
    progress_.update("reading calibration text", 0, 0);
    ProgressSink silent;  // rank 0 speaks for all
    report_.calibration = load_calibration(options_, config_, options_.place.rank == 0 ? progress_ : silent);
  }

  QuantizeNeeds needs() const {
    QuantizeNeeds needs;
    needs.rows = static_cast<int64_t>(report_.calibration.rows.size());
    needs.row_length = report_.calibration.row_length;
    needs.threads = threads_;
    needs.is_calibrated = options_.recipe != QuantizeRecipe::kRtn;
    needs.is_trefoil = options_.recipe == QuantizeRecipe::kTrefoil;
    needs.has_original_stream = options_.recipe == QuantizeRecipe::kTrefoil && options_.tuning.target_alpha > 0;
    needs.stores_bf16 = options_.numerics == Numerics::kBf16;
    needs.budget_bytes = options_.memory_bytes != 0 ? options_.memory_bytes : read_machine_memory().limit_bytes();
    needs.num_tensors = source_->tensors().size();
    needs.end_layer = layers_.back().layer + 1;
    needs.processes = options_.join ? std::max(options_.place.size, kLikelyProcesses) : 1;
    return needs;
  }

  void cut_work() {
    cut_ = cut_quantize(config_, needs());
    report_.planned_memory_bytes = cut_.peak_bytes();
    report_.planned_scratch_bytes = scratch_bytes(config_, needs());
  }

  // What an interrupted run has written already is not asked for again.
  void require_space(const OutputFolder& output) const {
    if (output.is_publishing()) return;
    const uint64_t scratch = report_.planned_scratch_bytes;
    const bool same_place = options_.work_dir.empty();
    const uint64_t here = bytes_needed() + (same_place ? scratch : 0);
    output.require_space(here - std::min(here, output.staged_bytes()));
    if (same_place) return;
    const uint64_t there =
        space_used(activation_folder_of(output.staging(), options_.work_dir, digest_of(identity_of(report_))));
    if (const uint64_t free = free_space(options_.work_dir) + there; free < scratch) {
      fail(ErrorCode::kOverBudget, "work folder {}: {} free, {} needed", options_.work_dir.string(), format_gb(free),
           format_gb(scratch));
    }
  }

  // A folder of activations must not be taken for a part of the source or of the output.
  void check_work_dir() const {
    for (const fs::path& folder : {options_.source, options_.output}) {
      const fs::path& work = options_.work_dir;
      if (!work.empty() && (lies_inside(work, folder) || fs::weakly_canonical(work) == fs::weakly_canonical(folder)))
        fail(ErrorCode::kInvalidArgument, "work folder {}: lies inside {}", work.string(), folder.string());
    }
  }

  void quantize_into(OutputFolder& output) {
    output.begin();
    output.keep();  // whatever happens from here on, unless nothing was finished
    try {
      work(output);
    } catch (...) {
      // The process that finishes takes the staging folder away under those that joined it.
      if (!options_.join || output.has_staging() || !fs::exists(options_.output / last_file())) throw;
      is_finished_by_other_ = true;
    }
  }

  void work(OutputFolder& output) {
    const WorkGrain grain{cut_.unit_rows, cut_.pass_rows, cut_.experts_per_unit};
    const JobPlan plan{steps_cut_by(grain), needs().budget_bytes, report_.planned_memory_bytes,
                       report_.planned_scratch_bytes};
    const bool has_earlier_work = output.has_job();
    std::optional<JobFolder> job;
    try {
      job.emplace(output, identity_of(report_), grain, plan,
                  JobFolder::Options{options_.join, options_.overwrite, options_.resume, options_.work_dir,
                                     options_.stop, this_process(options_.place), asked_of(report_)});
      check_grain(job->grain());
      Ledger ledger(job->ledger_folder(), job->digest());
      do_job(output, *job, ledger);
    } catch (...) {
      const bool has_finished_units = job && !holds_nothing(job->ledger_folder());
      if (!has_earlier_work && !has_finished_units && (!job || job->is_alone())) output.keep(false);
      throw;
    }
  }

  // An interrupted run's units may be larger than this one's budget allows.
  void check_grain(const WorkGrain& grain) const {
    const uint64_t needed = cut_bytes(config_, needs(), grain.unit_rows, grain.pass_rows);
    if (const uint64_t budget = needs().budget_bytes; budget != 0 && needed > budget) {
      fail(ErrorCode::kOverBudget,
           "the interrupted run was cut for more memory: with {} threads it needs {}, the budget is {}; --overwrite "
           "begins again within that",
           threads_, format_gib(needed), format_gib(budget));
    }
  }

  void do_job(OutputFolder& output, JobFolder& job, Ledger& ledger) {
    if (!output.is_publishing()) {
      ThreadPool pool(threads_);
      make_shards(output, job, ledger, pool);
    } else {
      let_others_in(job);
    }
    const std::optional<FileLock> finishing = options_.place.rank == 0 ? job.claim_finish() : std::nullopt;
    if (!finishing) {
      is_finished_by_other_ = true;
      return;
    }
    collect(job, ledger);
    if (!output.is_publishing()) complete(output.staging());
    std::error_code ignored;
    fs::remove_all(job.activation_folder(), ignored);
    output.publish(last_file());
  }

  void let_others_in(JobFolder& job) const {
    if (!options_.join) return;
    job.share();
    if (options_.meet) options_.meet();
  }

  std::vector<PlannedStep> steps_cut_by(const WorkGrain& grain) const {
    return plan_steps({*source_, config_, options_, layers_, grain,
                       static_cast<int64_t>(report_.calibration.rows.size()), report_.calibration.row_length,
                       static_cast<int64_t>(plans_.size())});
  }

  void make_shards(OutputFolder& output, JobFolder& job, Ledger& ledger, ThreadPool& pool) {
    StagedShards shards(*source_, plans_, encoding_of(options_), output.staging());
    Crew crew(ledger, {options_.join, options_.stop, options_.place, steps_cut_by(job.grain()), needs().budget_bytes},
              progress_);
    std::optional<ActivationStore> activations;
    if (options_.recipe != QuantizeRecipe::kRtn) {
      activations.emplace(job.activation_folder(), config_, options_.numerics, report_.calibration.num_tokens(),
                          split_layer_of(layers_), /*write_through=*/options_.join);
    }
    const WalkInputs inputs{source_,
                            config_,
                            options_,
                            layers_,
                            report_.calibration,
                            job.grain(),
                            cut_.experts_at_once,
                            activations ? &*activations : nullptr,
                            shards,
                            ledger,
                            crew,
                            pool,
                            progress_};
    if (job.needs_audit()) audit_walk(inputs);
    let_others_in(job);
    report_.peak_scratch_bytes = walk(inputs);
    crew.run(kCopyTitle, copy_units(shards));
  }

  std::vector<Unit> copy_units(StagedShards& shards) const {
    std::vector<Unit> units;
    for (const ShardPlan& plan : plans_) {
      units.push_back({copy_unit_name(plan.file), [&shards, &plan] {
                         UnitRecord record;
                         record.ranges = shards.copy_unchanged(plan);
                         shards.sync(plan.file);
                         return record;
                       }});
    }
    return units;
  }

  // The facts of the report that the units recorded.
  void collect(const JobFolder& job, const Ledger& ledger) {
    report_.layers = collect_layer_records(ledger, layers_, job.grain(), report_.calibration.num_tokens());
    report_.steps = step_records(job, ledger);
    report_.peak_memory_bytes = peak_resident_bytes();
    report_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  std::vector<StepRecord> step_records(const JobFolder& job, const Ledger& ledger) const {
    JobTally tally(steps_cut_by(job.grain()));
    for (const std::string& unit : ledger.units()) {
      if (const auto record = read_unit_summary(ledger.record_of(unit))) tally.add(unit, record->seconds);
    }
    std::vector<StepRecord> records;
    for (const JobTally::Step& step : tally.steps())
      records.push_back({step.plan.kind, step.plan.layer, step.seconds, step.plan.gflop});
    return records;
  }

  // Everything but the shards, and the check that what is there is a checkpoint.
  void complete(const fs::path& staging) {
    write_text_file(staging / kReportFile, report_json(report_));
    write_text_file(staging / kReportPage, report_html(report_));
    progress_.update("checking the output", 0, 0);
    if (is_partial()) {
      check_shards(staging, plans_);
    } else {
      for (const std::string& name : side_files_) {
        make_folder((staging / name).parent_path());
        copy_file_atomic(options_.source / name, staging / name);
      }
      const fs::path config = options_.source / kConfigFile;
      write_text_file(staging / kConfigFile,
                      write_quantized_config(read_text_file(config), config_of(options_), config.string()));
      write_text_file(staging / kRecipeFile, recipe_yaml(options_));
      write_text_file(staging / card_file_, model_card(report_));
      if (has_index_) write_text_file(staging / kIndexFile, write_index(index_of(plans_)));
      check_output(staging, plans_, layers_, encoding_of(options_));
    }
    progress_.update("hashing the output", 0, 0);
    std::vector<std::string> hashed = files_;
    std::erase(hashed, kSumsFile);
    std::sort(hashed.begin(), hashed.end());
    write_text_file(staging / kSumsFile, sha256_sums(staging, hashed, [&] { stop_if_asked(options_.stop); }));
  }

  const QuantizeOptions& options_;
  ProgressSink& progress_;
  std::shared_ptr<const Checkpoint> source_;
  ModelConfig config_;
  bool has_index_ = false;
  std::vector<MoeLayer> layers_;  // to quantize
  std::vector<ShardPlan> plans_;  // to write
  std::vector<std::string> side_files_;
  std::vector<std::string> files_;  // of the output
  std::string card_file_;
  int threads_ = 1;
  QuantizeCut cut_;
  bool is_finished_by_other_ = false;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  QuantizeReport report_;
};

}  // namespace

QuantizeSummary quantize(const QuantizeOptions& options, ProgressSink* progress) {
  check_options(options);
  return_freed_memory();
  ProgressSink silent;
  QuantizeJob job(options, progress != nullptr ? *progress : silent);
  return job.run();
}

}  // namespace trefoil
