#include <fmt/format.h>

#include "cli/choice.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "trefoil/recode.h"

namespace trefoil::cli {
namespace {

struct RecodeArguments {
  std::string model;
  std::string output;
  std::string to;
  bool overwrite = false;
};

int run_recode(Context& context, const RecodeArguments& arguments) {
  RecodeOptions options;
  options.input = resolve_model(arguments.model);
  options.output = expand_home(arguments.output);
  options.to = parse_packed_form(arguments.to).value();  // one of the names the parser admits
  options.overwrite = arguments.overwrite;
  options.threads = context.num_threads();
  options.progress = context.progress.get();
  options.stop = &context.stop;
  const RecodeResult result = recode(options);
  print(fmt::format("{} Linears from {} to {}, every value equal bit for bit: {} bytes of tensors became {}\n",
                    result.num_linears, to_string(result.from), to_string(result.to), result.input_bytes,
                    result.output_bytes));
  return kOk;
}

}  // namespace

void add_recode(CLI::App& program, Context& context) {
  CLI::App* command = program.add_subcommand("recode", "the same quantized weights in another layout, lossless");
  const auto arguments = std::make_shared<RecodeArguments>();
  add_model_argument(*command, arguments->model);
  command->add_option("-o,--output", arguments->output, "folder to write")->required();
  one_of(command->add_option("--to", arguments->to, "the layout to write"), {"w3-dense", "w3-padded", "w4"})
      ->required();
  command->add_flag("--overwrite", arguments->overwrite, "replace an output this program wrote");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return run_recode(context, *arguments); }; });
}

}  // namespace trefoil::cli
