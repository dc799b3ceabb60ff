#include <fmt/format.h>

#include <ctime>

#include "cli/choice.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "trefoil/eval.h"

namespace trefoil::cli {
namespace {

struct EvalArguments {
  EvalCommand command = EvalCommand::kKld;
  std::vector<std::string> models;
  std::string reference;
  std::string report;
  bool json = false;
  bool no_date = false;
  EvalOptions options;
};

// "label=folder" or "folder", whose label is then the folder's own name.
EvalModel parse_candidate(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals != std::string::npos && text.find('/') > equals)
    return {text.substr(0, equals), resolve_model(text.substr(equals + 1))};
  const std::filesystem::path folder = resolve_model(text);
  return {std::filesystem::weakly_canonical(folder).filename().string(), folder};
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

int run_eval(Context& context, EvalArguments& arguments) {
  EvalOptions& o = arguments.options;
  if (!arguments.reference.empty()) o.reference.folder = resolve_model(arguments.reference);
  for (const std::string& model : arguments.models) o.candidates.push_back(parse_candidate(model));
  for (std::filesystem::path& file : o.texts) file = expand_home(file.string());
  o.threads = context.threads;
  o.stop = &context.stop;
  if (!arguments.no_date) o.date = today();
  const EvalReport report = evaluate(arguments.command, o, context.progress.get());
  if (!arguments.report.empty()) report.write(expand_home(arguments.report));
  print(arguments.json ? report.to_json() : report.to_text());
  return report.passed() ? kOk : kCheckFailed;
}

void add_eval_command(CLI::App& eval, Context& context, EvalCommand which, const char* summary) {
  CLI::App* command = eval.add_subcommand(to_string(which), summary);
  const auto arguments = std::make_shared<EvalArguments>();
  arguments->command = which;
  EvalOptions& o = arguments->options;
  command
      ->add_option("MODEL", arguments->models,
                   "candidates: a folder, org/name, or label=folder; several are compared in pairs")
      ->required();
  CLI::Option* reference =
      command->add_option("--reference", arguments->reference, "the model they are judged against");
  if (which != EvalCommand::kPpl) reference->required();
  command->add_option("--text", o.texts, "JSONL or text to judge on; must not have been calibrated on")->required();
  command->add_option("--ctx-size", o.ctx_size, "tokens of a row")->capture_default_str();
  command->add_flag("--per-document", o.per_document, "rows begin and end with documents");
  command->add_option("--max-rows", o.max_rows, "at most this many rows, evenly spread (0: all)")
      ->capture_default_str();
  choose<EvalOptions::Numerics>(
      command->add_option("--numerics", o.numerics,
                          "f32: differences are the weights' alone (default); bf16: as served"),
      {{"f32", EvalOptions::Numerics::kF32}, {"bf16", EvalOptions::Numerics::kBf16}});
  choose<KernelMode>(command->add_option("--kernels", o.kernels, "products with packed weights, under bf16 numerics"),
                     {{"reference", KernelMode::kReference},
                      {"exact", KernelMode::kExact},
                      {"fast16", KernelMode::kFast16},
                      {"fast8", KernelMode::kFast8}});
  command->add_option("--batch-rows", o.batch_rows, "rows read together")->capture_default_str();
  command->add_option("--prefill-chunk", o.prefill_chunk, "tokens of a row read at a time (0: the whole row)")
      ->capture_default_str();
  command->add_option("--seed", o.seed, "of the bootstrap")->check(not_negative())->capture_default_str();
  command->add_option("--fail-if", o.fail_if, "exit 3 when it holds, as 'kld.mean>0.05'");
  command->add_option("--report", arguments->report, "write JSON, Markdown and one HTML page into this folder");
  command->add_flag("--json", arguments->json, "print the JSON report instead of tables");
  command->add_flag("--no-date", arguments->no_date, "leave the date out of the report");
  if (which == EvalCommand::kKld) {
    command->add_option("--noise-rows", o.noise_rows, "rows of the noise floor (0: none)")->capture_default_str();
    command->add_flag("--probes", o.with_probes, "the probes too");
  }
  if (which != EvalCommand::kPpl) {
    command->add_option("--probe-rows", o.probe_rows, "rows of the activation probes (0: all)")->capture_default_str();
    command->add_option("--probe-experts", o.probe_experts, "experts of a layer whose weights are compared (0: all)")
        ->capture_default_str();
  }
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return run_eval(context, *arguments); }; });
}

}  // namespace

void add_eval(CLI::App& program, Context& context) {
  CLI::App* command =
      program.add_subcommand("eval", "what was lost against the original: perplexity, KL divergence, probes");
  command->require_subcommand(1);
  add_eval_command(*command, context, EvalCommand::kPpl, "perplexity, and its paired ratio to the reference");
  add_eval_command(*command, context, EvalCommand::kKld, "KL divergence, agreement and perplexity, with a noise floor");
  add_eval_command(*command, context, EvalCommand::kProbe,
                   "where it was lost: weights, layers, residual streams, routing");
}

}  // namespace trefoil::cli
