#include "trefoil/eval.h"

#include <algorithm>

#include "base/error.h"
#include "eval/compare.h"
#include "eval/fail_if.h"
#include "eval/held_out.h"
#include "eval/machine.h"
#include "eval/noise_floor.h"
#include "eval/probe.h"
#include "eval/report.h"
#include "eval/summarize.h"

namespace trefoil {
namespace {

// `wanted` rows of a text, evenly spread; 0: all.
EvalText some_rows(const EvalText& text, int64_t wanted) {
  EvalText part;
  part.sources = text.sources;
  const size_t all = text.rows.size();
  const size_t count = wanted <= 0 ? all : std::min(all, static_cast<size_t>(wanted));
  for (size_t k = 0; k < count; ++k) part.rows.push_back(text.rows[k * all / count]);
  return part;
}

int64_t longest_row(const EvalText& text) {
  size_t longest = 0;
  for (const EvalRow& row : text.rows) longest = std::max(longest, row.ids.size());
  return static_cast<int64_t>(longest);
}

std::vector<GroupSummary> named_groups(const std::vector<std::string>& names) {
  std::vector<GroupSummary> groups(names.size());
  for (size_t i = 0; i < names.size(); ++i) groups[i].name = names[i];
  return groups;
}

void check_options(EvalCommand command, const EvalOptions& options) {
  if (options.candidates.empty() && (command != EvalCommand::kPpl || options.reference.folder.empty())) {
    fail(ErrorCode::kInvalidArgument, "eval {}: no model to judge", to_string(command));
  }
  if (options.reference.folder.empty() && command != EvalCommand::kPpl) {
    fail(ErrorCode::kInvalidArgument, "eval {}: no reference model given", to_string(command));
  }
  if (options.batch_rows < 1) fail(ErrorCode::kInvalidArgument, "batch rows {}: at least 1", options.batch_rows);
  if (options.prefill_chunk < 0) {
    fail(ErrorCode::kInvalidArgument, "prefill chunk {}: not negative, 0 means the whole row", options.prefill_chunk);
  }
  if (options.bootstrap_replicates < 2) {
    fail(ErrorCode::kInvalidArgument, "bootstrap replicates {}: at least 2", options.bootstrap_replicates);
  }
  if (options.threads < 0) fail(ErrorCode::kInvalidArgument, "threads {}: not negative", options.threads);
}

void check_labels(const std::vector<LoadedModel>& models) {
  for (size_t i = 0; i < models.size(); ++i) {
    if (models[i].label.empty()) fail(ErrorCode::kInvalidArgument, "a model needs a label");
    for (size_t j = 0; j < i; ++j) {
      if (models[i].label == models[j].label) {
        fail(ErrorCode::kInvalidArgument, "two models are labelled '{}'", models[i].label);
      }
    }
  }
}

// Every part of an evaluation says where it is before each piece of work: that is where it can be stopped.
class StoppableProgress : public ProgressSink {
 public:
  StoppableProgress(ProgressSink* sink, const std::atomic<bool>* stop) : sink_(sink), stop_(stop) {}

  void update(std::string_view stage, int64_t done, int64_t total) override {
    if (stop_ != nullptr && stop_->load())
      fail(ErrorCode::kCancelled, "stopped during {}, {} of {}", stage, done, total);
    if (sink_ != nullptr) sink_->update(stage, done, total);
  }
  void note(std::string_view message) override {
    if (sink_ != nullptr) sink_->note(message);
  }

 private:
  ProgressSink* sink_;
  const std::atomic<bool>* stop_;
};

class Evaluation {
 public:
  Evaluation(EvalCommand command, const EvalOptions& options, ProgressSink& progress)
      : command_(command),
        options_(options),
        progress_(progress),
        pool_(options.threads > 0 ? options.threads : usable_cpus()),
        conditions_(parse_conditions(options.fail_if)) {
    forward_.numerics = options.numerics == EvalOptions::Numerics::kBf16 ? Numerics::kBf16 : Numerics::kF32;
    forward_.kernels = options.kernels;
    if (options.kernels != KernelMode::kReference && forward_.numerics == Numerics::kF32) {
      fail(ErrorCode::kInvalidArgument, "--kernels {} multiplies bf16 activations: it needs --numerics bf16",
           to_string(options.kernels));
    }
    compare_.batch_rows = options.batch_rows;
    compare_.prefill_chunk = options.prefill_chunk;
  }

  std::shared_ptr<const EvalRecord> run() {
    load_models();
    load_text();
    describe();
    prepare_names();
    check_names();
    if (command_ != EvalCommand::kProbe) score();
    if (wants_noise()) {
      record_.noise =
          measure_noise_floor(some_rows(text_, options_.noise_rows), models_[0], forward_, compare_, pool_, progress_);
    }
    if (wants_probes()) probe();
    record_.checks = apply_conditions(conditions_, named_values(record_), labels_);
    return std::make_shared<const EvalRecord>(std::move(record_));
  }

 private:
  void load_models();
  void load_text();
  void describe();
  void prepare_names();
  void check_names();
  void score();
  void probe();

  bool wants_kld() const { return command_ == EvalCommand::kKld; }
  bool wants_noise() const { return wants_kld() && options_.noise_rows > 0; }
  bool wants_probes() const { return command_ == EvalCommand::kProbe || (wants_kld() && options_.with_probes); }
  ProbeSettings probe_settings() const { return {options_.batch_rows, options_.probe_experts, forward_.numerics}; }

  EvalCommand command_;
  const EvalOptions& options_;
  ProgressSink& progress_;
  ThreadPool pool_;
  std::vector<Condition> conditions_;
  ForwardOptions forward_;
  CompareSettings compare_;
  std::vector<LoadedModel> models_;  // reference first
  std::vector<std::string> labels_;  // of the candidates
  EvalText text_;
  EvalRecord record_;
};

void Evaluation::load_models() {
  std::vector<EvalModel> wanted;
  if (!options_.reference.folder.empty()) wanted.push_back(options_.reference);
  wanted.insert(wanted.end(), options_.candidates.begin(), options_.candidates.end());
  for (const EvalModel& model : wanted) models_.push_back(load_for_eval(model.label, model.folder));
  check_labels(models_);
  for (size_t i = 1; i < models_.size(); ++i) {
    require_comparable(models_[0], models_[i]);
    labels_.push_back(models_[i].label);
  }
}

void Evaluation::load_text() {
  const Tokenizer tokenizer = Tokenizer::load(models_[0].checkpoint->folder());
  LoadedText loaded =
      load_eval_text(options_.texts, tokenizer, {options_.ctx_size, options_.per_document, options_.max_rows});
  text_ = std::move(loaded.text);
  record_.texts = std::move(loaded.files);
  record_.notes = std::move(loaded.notes);
}

void Evaluation::describe() {
  record_.command = to_string(command_);
  record_.version = program_version();
  record_.date = options_.date;
  record_.machine = describe_machine(pool_.num_threads());
  record_.token_sha256 = token_hash(text_);
  record_.sources = text_.sources;
  record_.settings = {
      {"numerics", forward_.numerics == Numerics::kBf16 ? "bf16" : "f32"},
      {"kernels", to_string(forward_.kernels)},
      {"attention forms", "KDA recurrent, MLA expanded"},
      {"row length", std::to_string(options_.ctx_size)},
      {"rows", options_.per_document ? "one document each" : "packed without padding, one source each"},
      {"scored", "tokens 2 to n of every row, each from all before it"},
      {"rows together", std::to_string(options_.batch_rows)},
      {"prefill chunk", options_.prefill_chunk > 0 ? std::to_string(options_.prefill_chunk) : "whole row"},
      {"bootstrap seed", std::to_string(options_.seed)},
      {"bootstrap replicates", std::to_string(options_.bootstrap_replicates)},
  };
  if (wants_probes()) record_.settings.emplace_back("probe rows", std::to_string(options_.probe_rows));
  for (size_t i = 0; i < models_.size(); ++i) {
    record_.models.push_back(models_[i].facts);
    if (i == 0) continue;
    record_.models.back().held_out = held_out_verdict(models_[i].checkpoint->folder(), record_.texts, text_);
  }
}

// Fills in every name the report will have, so that conditions can be checked before hours of work.
void Evaluation::prepare_names() {
  record_.reference.by_source = named_groups(text_.sources);
  for (size_t i = 0; i < labels_.size() && command_ != EvalCommand::kProbe; ++i) {
    CandidateSummary candidate;
    candidate.label = labels_[i];
    candidate.by_source = named_groups(text_.sources);
    if (wants_kld()) {
      candidate.by_position = named_groups(position_bucket_names(longest_row(text_)));
      candidate.by_entropy = named_groups({"q1", "q2", "q3", "q4"});
    }
    record_.candidates.push_back(candidate);
    for (size_t j = 0; j < i; ++j) {
      record_.pairs.emplace_back();
      record_.pairs.back().first = labels_[j];
      record_.pairs.back().second = labels_[i];
    }
  }
  if (wants_noise()) {
    const EvalText part = some_rows(text_, options_.noise_rows);
    for (const NoiseVariant& variant :
         noise_variants(forward_, compare_, static_cast<int64_t>(part.rows.size()), longest_row(part))) {
      record_.noise.emplace_back();
      record_.noise.back().name = variant.name;
    }
  }
  for (size_t i = 1; i < models_.size() && wants_probes(); ++i) {
    record_.probes.push_back(blank_probe(models_[0], models_[i]));
  }
}

void Evaluation::check_names() {
  const std::vector<NamedValue> names = named_values(record_);
  for (const Condition& condition : conditions_) resolve_names(condition, names, labels_);
}

void Evaluation::score() {
  std::vector<std::unique_ptr<Model>> models;
  std::vector<std::unique_ptr<ModelLogits>> logits;
  std::vector<LogitsProvider*> candidates;
  for (const LoadedModel& model : models_) {
    models.push_back(model.make_model(forward_, pool_));
    logits.push_back(std::make_unique<ModelLogits>(model.label, *models.back()));
    if (logits.size() > 1) candidates.push_back(logits.back().get());
  }
  const ScoredTokens table = compare_models(text_, *logits[0], candidates, compare_, pool_, progress_);
  const SummarySettings settings{options_.seed, options_.bootstrap_replicates, wants_kld()};
  record_.reference = summarize_reference(table, text_.sources);
  record_.candidates.clear();
  record_.pairs.clear();
  for (size_t i = 0; i < labels_.size(); ++i) {
    record_.candidates.push_back(summarize_candidate(table, i, labels_[i], text_.sources, settings));
    for (size_t j = 0; j < i; ++j) {
      record_.pairs.push_back(summarize_pair(table, j, i));
      record_.pairs.back().first = labels_[j];
      record_.pairs.back().second = labels_[i];
    }
  }
}

void Evaluation::probe() {
  const EvalText part = some_rows(text_, options_.probe_rows);
  const ProbeSettings settings = probe_settings();
  for (size_t i = 1; i < models_.size(); ++i) {
    record_.probes[i - 1].weights = probe_weights(models_[0], models_[i], settings, pool_, progress_);
  }
  probe_activations(part, models_[0], std::span(models_).subspan(1), settings, pool_, progress_, record_.probes);
}

}  // namespace

const char* to_string(EvalCommand command) {
  switch (command) {
    case EvalCommand::kPpl:
      return "ppl";
    case EvalCommand::kKld:
      return "kld";
    case EvalCommand::kProbe:
      return "probe";
  }
  return "?";
}

EvalReport evaluate(EvalCommand command, const EvalOptions& options, ProgressSink* progress) {
  check_options(command, options);
  StoppableProgress stoppable(progress, options.stop);
  return EvalReport(Evaluation(command, options, stoppable).run());
}

}  // namespace trefoil
