#include "cli/command.h"
#include "cli/model_argument.h"
#include "trefoil/plan.h"
#include "trefoil/self_check.h"
#include "trefoil/size.h"

namespace trefoil::cli {
namespace {

struct PlanArguments {
  std::string model;
  std::string config;
  std::string index;
  std::string task = "run";
  std::string memory;
  bool json = false;
  PlanOptions options;
};

int run_plan(Context& context, PlanArguments& arguments) {
  PlanOptions& o = arguments.options;
  o.files = {resolve_model(arguments.model), expand_home(arguments.config), expand_home(arguments.index)};
  o.task = parse_plan_task(arguments.task);
  if (!arguments.memory.empty()) o.memory_bytes = parse_size(arguments.memory);
  o.threads = context.threads;
  if (o.task == PlanTask::kQuantize) o.gflops_per_core = linear_algebra_gflops(context.num_threads());
  const PlanReport report = plan(o);
  print(arguments.json ? to_json(report) : to_text(report));
  return kOk;
}

}  // namespace

void add_plan(CLI::App& program, Context& context) {
  CLI::App* command = program.add_subcommand("plan", "sizes, GB per token, what fits which machine; needs no shards");
  const auto arguments = std::make_shared<PlanArguments>();
  PlanOptions& o = arguments->options;
  add_model_argument(*command, arguments->model);
  command->add_option("--config", arguments->config, "this file instead of MODEL/config.json");
  command->add_option("--index", arguments->index,
                      "this file (also .gz, .zst) instead of MODEL/model.safetensors.index.json");
  command->add_option("--task", arguments->task, "quantize, run or serve")->capture_default_str();
  command->add_option("--memory", arguments->memory, "memory that may be used, as 64GiB (default: this machine's)");
  command->add_option("--hardware", o.hardware, "another machine: '8x141GB GPU', '64-core 768GB'; may be repeated");
  command->add_option("-c,--ctx-size", o.context, "tokens a sequence keeps")->capture_default_str();
  command->add_option("--sequences", o.sequences, "sequences at the same time")->capture_default_str();
  command->add_option("--num-calibration-samples", o.num_calibration_samples, "of quantize")->capture_default_str();
  command->add_option("--max-seq-length", o.max_seq_length, "of quantize")->capture_default_str();
  command->add_flag("--json", arguments->json, "JSON instead of tables");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return run_plan(context, *arguments); }; });
}

}  // namespace trefoil::cli
