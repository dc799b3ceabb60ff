#include "trefoil/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/parallel.h"
#include "plan/machine_fit.h"
#include "plan/model_facts.h"
#include "plan/quantize_needs.h"
#include "plan/sequence_state.h"

namespace trefoil {
namespace {

constexpr std::pair<PlanTask, const char*> kTasks[] = {
    {PlanTask::kQuantize, "quantize"}, {PlanTask::kRun, "run"}, {PlanTask::kServe, "serve"}};

void check_options(const PlanOptions& options) {
  const auto at_least_one = [](std::string_view name, int64_t value) {
    constexpr int64_t kMost = 1ll << 40;
    if (value < 1 || value > kMost) fail(ErrorCode::kInvalidArgument, "{}: {}, expected 1 to 2^40", name, value);
  };
  at_least_one("context", options.context);
  at_least_one("sequences", options.sequences);
  at_least_one("num_calibration_samples", options.num_calibration_samples);
  at_least_one("max_seq_length", options.max_seq_length);
  if (options.num_calibration_samples > (1ll << 40) / options.max_seq_length) {
    fail(ErrorCode::kInvalidArgument, "{} rows of {} tokens are more than any text", options.num_calibration_samples,
         options.max_seq_length);
  }
  if (!std::isfinite(options.disk_gb_per_s) || options.disk_gb_per_s <= 0) {
    fail(ErrorCode::kInvalidArgument, "disk speed {} GB/s, expected a number above 0", options.disk_gb_per_s);
  }
}

// --- the model in every storage ---

// What a form is, beside its storage.
struct FormKind {
  const char* name;
  ExpertStorage experts;
  const char* why;
};

constexpr int64_t kGroupSize = 64;

const FormKind kRecodes[] = {
    {"W3 dense",
     {LinearFormat::kPackedInt, 3, kGroupSize, PackedLayout::kDense},
     "3 bits without gaps: what quantize writes; compressed-tensors 0.18 and later"},
    {"W3 padded",
     {LinearFormat::kPackedInt, 3, kGroupSize, PackedLayout::kPadded},
     "10 codes in a 32-bit word: compressed-tensors 0.17; no stock vLLM of mid-2026 loads it"},
    {"W4",
     {LinearFormat::kPackedInt, 4, kGroupSize, PackedLayout::kDense},
     "W3 widened without loss for loaders that know 4 bits only; saves nothing against the MXFP4 release"},
};

uint64_t u(int64_t value) {
  return static_cast<uint64_t>(value);
}

// Sums over all routed experts of the config, from the parts of w1, w2 and w3.
void add_experts(const ModelConfig& config, const ExpertStorage& experts, PlannedForm& form) {
  const uint64_t linears = u(config.num_experts) * u(config.num_hidden_layers - config.first_k_dense_replace);
  const int64_t latent = config.routed_expert_hidden_size, inner = config.moe_intermediate_size;
  for (const auto& [out, in] : {std::pair{inner, latent}, std::pair{latent, inner}, std::pair{inner, latent}}) {
    for (const LinearPart& part : linear_parts(experts, out, in)) {
      uint64_t bytes = 0;
      byte_size_of(part.shape, part.dtype, &bytes);
      uint64_t& sum = part.suffix == ".weight_scale"   ? form.scale_bytes
                      : part.suffix == ".weight_shape" ? form.shape_bytes
                                                       : form.packed_bytes;
      sum += bytes * linears;
    }
  }
}

PlannedForm planned_form(const ModelSource& source, const ModelFacts& facts, const FormKind& kind) {
  const ModelConfig& config = source.config;
  PlannedForm form;
  form.name = kind.name;
  form.storage = describe(kind.experts);
  form.why = kind.why;
  add_experts(config, kind.experts, form);
  form.rest_bytes = facts.total_bytes - facts.routed_bytes();
  const double weights = 3.0 * static_cast<double>(config.moe_intermediate_size) *
                         static_cast<double>(config.routed_expert_hidden_size) *
                         static_cast<double>(config.num_experts) *
                         static_cast<double>(config.num_hidden_layers - config.first_k_dense_replace);
  form.bits_per_weight = weights == 0 ? 0 : 8.0 * static_cast<double>(form.expert_bytes()) / weights;
  const uint64_t routed = form.expert_bytes() / u(config.num_experts) * u(config.num_experts_per_token);
  form.bytes_per_token = token_traffic(source, facts).resident_bytes + routed;
  return form;
}

bool group_size_divides(const ModelConfig& config) {
  return config.moe_intermediate_size % kGroupSize == 0 && config.routed_expert_hidden_size % kGroupSize == 0;
}

std::vector<PlannedForm> planned_forms(const ModelSource& source, const ModelFacts& facts) {
  std::vector<PlannedForm> forms;
  forms.push_back(planned_form(source, facts, {"as it is", source.experts, "this checkpoint"}));
  if (!group_size_divides(source.config)) return forms;
  for (const FormKind& kind : kRecodes) {
    if (describe(kind.experts) != forms.front().storage) forms.push_back(planned_form(source, facts, kind));
  }
  return forms;
}

// --- machines ---

Machine this_machine(const PlanOptions& options, PlanReport& report) {
  const MachineMemory memory = read_machine_memory();
  Machine machine;
  machine.name = "this machine";
  machine.cores = usable_cpus();
  machine.device_bytes = options.memory_bytes.value_or(memory.limit_bytes());
  if (!options.memory_bytes.has_value() && memory.cgroup_bytes != 0 && memory.cgroup_bytes < memory.total_bytes) {
    report.notes.push_back(fmt::format("cgroup {} allows {} of this machine's {}", memory.cgroup,
                                       format_gib(memory.cgroup_bytes), format_gib(memory.total_bytes)));
  }
  if (options.memory_bytes.has_value() && memory.limit_bytes() != 0 && *options.memory_bytes > memory.limit_bytes()) {
    report.notes.push_back(fmt::format("the memory budget of {} is more than the {} this process can have",
                                       format_gib(*options.memory_bytes), format_gib(memory.limit_bytes())));
  }
  return machine;
}

MachineFit machine_fit(const Machine& machine, const ModelSource& source, const ModelFacts& facts,
                       const PlanReport& report, const PlanOptions& options) {
  // Other runtimes keep the caches as bf16 on GPUs; here they are f32.
  const SequenceStateSize state = sequence_state_size(source.config, machine.gpu ? 2 : 4);
  MachineFit result{machine.name, machine.memory_bytes(), {}};
  const uint64_t resident_per_token = token_traffic(source, facts).resident_bytes;
  for (const PlannedForm& form : report.forms) {
    FitNeeds needs;
    needs.state_bytes = state.at(options.context) * u(options.sequences);
    needs.routed_per_token = form.bytes_per_token - resident_per_token;
    needs.disk_gb_per_s = options.disk_gb_per_s;
    result.forms.push_back(fit(form, machine, needs));
  }
  return result;
}

// --- quantize ---

uint64_t dense_active_parameters(const ModelFacts& facts) {
  uint64_t parameters = 0;
  for (size_t i = 0; i < kNumComponents; ++i) {
    const auto component = static_cast<Component>(i);
    const bool every_token = is_text(component) && !is_routed(component) && component != Component::kEmbedTokens;
    parameters += every_token ? facts.components[i].parameters : 0;
  }
  return parameters;
}

uint64_t sum_of(const std::vector<PlanLine>& lines) {
  uint64_t sum = 0;
  for (const PlanLine& line : lines) sum += line.bytes;
  return sum;
}

QuantizeNeeds needs_of(const ModelFacts& facts, const PlanOptions& options, int64_t threads) {
  QuantizeNeeds needs;
  needs.rows = options.num_calibration_samples;
  needs.row_length = options.max_seq_length;
  needs.threads = threads;
  needs.num_tensors = facts.num_tensors();
  return needs;
}

double total_flop(const QuantizePlan& plan) {
  double flop = 0;
  for (const ComputeEstimate& estimate : plan.compute) flop += estimate.flop;
  return flop;
}

// What a job reaches of its cores' matrix product rate, all steps taken together (bench/README.md).
constexpr double kSustained = 0.6;

QuantizeFit quantize_fit(const ModelConfig& config, QuantizeNeeds needs, const PlanOptions& options,
                         const QuantizePlan& plan, const Machine& machine) {
  QuantizeFit fit;
  fit.machine = machine.name;
  fit.processes = machine.devices;
  fit.fits = least_budget(config, needs) <= machine.device_bytes;
  if (!fit.fits) {
    fit.why = fmt::format("{} is the least", format_gib(least_budget(config, needs)));
    return fit;
  }
  needs.budget_bytes = machine.device_bytes;
  const QuantizeCut cut = cut_quantize(config, needs);
  const auto processes = static_cast<double>(fit.processes);
  fit.experts_at_once = cut.experts_at_once;
  fit.peak_memory_bytes = cut.peak_bytes();
  const uint64_t scratch = scratch_bytes(config, needs);
  fit.scratch_in_memory = scratch <= (machine.device_bytes - fit.peak_memory_bytes) * u(fit.processes);
  const double rate = options.gflops_per_core * static_cast<double>(needs.threads) * kSustained * 1e9;
  if (rate > 0) fit.arithmetic_hours = total_flop(plan) / (rate * processes) / 3600;
  // One drive, or one shared file system: more machines do not read faster.
  double bytes = 0;
  for (const PlanLine& line : plan.disk) bytes += line.name == "scratch" ? 0 : static_cast<double>(line.bytes);
  if (!fit.scratch_in_memory) bytes += static_cast<double>(scratch_traffic_bytes(config, needs));
  fit.disk_hours = bytes / (options.disk_gb_per_s * 1e9) / 3600;
  fit.why = fmt::format("{} x {} cores at {:.0f} GFLOP/s, {:.0f} % sustained; {} experts at once; activations {}",
                        fit.processes, needs.threads, options.gflops_per_core, 100 * kSustained, fit.experts_at_once,
                        fit.scratch_in_memory
                            ? "in page cache"
                            : fmt::format("from disk, {} in all", format_gb(scratch_traffic_bytes(config, needs))));
  return fit;
}

QuantizePlan quantize_plan(const ModelSource& source, const ModelFacts& facts, const PlanOptions& options,
                           const PlannedForm& output, const std::vector<Machine>& machines) {
  const ModelConfig& config = source.config;
  QuantizeNeeds needs = needs_of(facts, options, options.threads > 0 ? options.threads : usable_cpus());
  const uint64_t memory_bytes = machines.front().memory_bytes();
  QuantizePlan plan;
  plan.calibration_tokens = needs.tokens();
  plan.least_memory_bytes = least_budget(config, needs);
  plan.fits_memory = memory_bytes == 0 || plan.least_memory_bytes <= memory_bytes;
  needs.budget_bytes = plan.fits_memory ? memory_bytes : plan.least_memory_bytes;
  plan.memory = quantize_memory(config, needs);
  plan.peak_memory_bytes = sum_of(plan.memory);
  plan.disk = {
      {"scratch", scratch_bytes(config, needs),
       "activations of the calibration text, in the work folder, at their largest"},
      {"read", facts.total_bytes, "every tensor of the source, some more than once"},
      {"written", output.total_bytes(), fmt::format("the output, {}", output.storage)},
      {"read back", output.total_bytes(), "the output is checked before it gets its name"},
  };
  plan.compute = quantize_compute(config, needs, dense_active_parameters(facts));
  for (const Machine& machine : machines) {
    if (machine.gpu) continue;
    const int64_t cores = machine.cores > 0 ? machine.cores : needs.threads;
    plan.machines.push_back(quantize_fit(config, needs_of(facts, options, cores), options, plan, machine));
  }
  return plan;
}

void add_quantize(const ModelSource& source, const ModelFacts& facts, const PlanOptions& options,
                  const std::vector<Machine>& machines, PlanReport& report) {
  const auto output = std::find_if(report.forms.begin(), report.forms.end(),
                                   [](const PlannedForm& form) { return form.name == "W3 dense"; });
  if (output == report.forms.end() || source.experts.format != LinearFormat::kMxfp4) {
    report.notes.push_back(fmt::format("quantize takes MXFP4 experts with widths that {} divides; these are {}",
                                       kGroupSize, describe(source.experts)));
    return;
  }
  report.quantize = quantize_plan(source, facts, options, *output, machines);
}

}  // namespace

PlanTask parse_plan_task(std::string_view name) {
  for (const auto& [task, task_name] : kTasks) {
    if (name == task_name) return task;
  }
  fail(ErrorCode::kInvalidArgument, "task \"{}\": expected quantize, run or serve", name);
}

const char* to_string(PlanTask task) {
  for (const auto& [known, name] : kTasks) {
    if (task == known) return name;
  }
  return "unknown";
}

PlanReport plan(const PlanOptions& options) {
  check_options(options);
  const ModelSource source = read_model_source(options.files);
  const ModelFacts facts = gather_facts(source);
  PlanReport report;
  report.path = source.path;
  report.task = options.task;
  report.forms = planned_forms(source, facts);
  report.context = options.context;
  report.sequences = options.sequences;
  report.sequence_state = sequence_state_lines(source.config, options.context);
  report.state_bytes = sequence_state_size(source.config, 2).at(options.context) * u(options.sequences);

  std::vector<Machine> machines = {this_machine(options, report)};
  for (const std::string& text : options.hardware) machines.push_back(parse_machine(text));
  if (options.task == PlanTask::kQuantize) {
    add_quantize(source, facts, options, machines, report);
  } else if (options.hardware.empty()) {
    const std::vector<Machine> common = common_machines();
    machines.insert(machines.end(), common.begin(), common.end());
  }
  for (const Machine& machine : machines) {
    report.machines.push_back(machine_fit(machine, source, facts, report, options));
  }
  const bool broken = std::any_of(facts.findings.begin(), facts.findings.end(),
                                  [](const Finding& finding) { return finding.severity == Finding::Severity::kError; });
  if (broken) report.notes.push_back("the checkpoint contradicts itself: `trefoil inspect` says where");
  if (options.context > source.config.max_position_embeddings) {
    report.notes.push_back(fmt::format("a context of {} is more than the model's {}", options.context,
                                       source.config.max_position_embeddings));
  }
  return report;
}

}  // namespace trefoil
