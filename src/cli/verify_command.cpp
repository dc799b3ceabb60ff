#include "cli/command.h"
#include "cli/model_argument.h"
#include "trefoil/verify.h"

namespace trefoil::cli {
namespace {

struct VerifyArguments {
  std::string model;
  std::string against;
  std::string sample = "all";
  bool json = false;
};

int64_t parse_sample(const std::string& text) {
  if (text == "all") return 0;
  char* end = nullptr;
  const long long count = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != '\0' || count < 1)
    throw Error(ErrorCode::kInvalidArgument, "--sample '" + text + "': expected 'all' or a number of Linears a layer");
  return count;
}

int run_verify(Context& context, const VerifyArguments& arguments) {
  VerifyOptions options;
  options.folder = resolve_model(arguments.model);
  if (!arguments.against.empty()) options.against = resolve_model(arguments.against);
  options.sample_per_layer = parse_sample(arguments.sample);
  options.threads = context.num_threads();
  options.progress = context.progress.get();
  options.stop = &context.stop;
  const VerifyReport report = verify(options);
  print(arguments.json ? report.to_json() : report.to_text());
  return report.passed() ? kOk : kCheckFailed;
}

}  // namespace

void add_verify(CLI::App& program, Context& context) {
  CLI::App* command =
      program.add_subcommand("verify", "prove a checkpoint: structure, config, every expert tensor, bit for bit");
  const auto arguments = std::make_shared<VerifyArguments>();
  add_model_argument(*command, arguments->model);
  command->add_option("--against", arguments->against, "the checkpoint it was made from");
  command->add_option("--sample", arguments->sample, "expert Linears of a layer to decode: all, or a number")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "the report as JSON");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return run_verify(context, *arguments); }; });
}

}  // namespace trefoil::cli
