#include "cli/command.h"
#include "cli/model_argument.h"
#include "trefoil/inspect.h"

namespace trefoil::cli {
namespace {

struct InspectArguments {
  std::string model;
  std::string config;
  std::string index;
  std::string tensors;
  bool list = false;
  bool json = false;
};

int run_inspect(const InspectArguments& arguments) {
  const ModelFiles files{resolve_model(arguments.model), expand_home(arguments.config), expand_home(arguments.index)};
  if (arguments.list) {
    const std::vector<TensorRow> rows = list_tensors(files, arguments.tensors);
    print(arguments.json ? to_json(rows) : to_text(rows));
    return kOk;
  }
  const InspectReport report = inspect(files);
  print(arguments.json ? to_json(report) : to_text(report));
  return report.ok() ? kOk : kCheckFailed;
}

}  // namespace

void add_inspect(CLI::App& program, Context& context) {
  CLI::App* command = program.add_subcommand("inspect", "components, bytes, formats, layer map; needs no shards");
  const auto arguments = std::make_shared<InspectArguments>();
  add_model_argument(*command, arguments->model);
  command->add_option("--config", arguments->config, "this file instead of MODEL/config.json");
  command->add_option("--index", arguments->index,
                      "this file (also .gz, .zst) instead of MODEL/model.safetensors.index.json");
  CLI::Option* tensors = command
                             ->add_option("--tensors", arguments->tensors,
                                          "list the tensors whose name matches this pattern (default: all)")
                             ->expected(0, 1);
  command->add_flag("--json", arguments->json, "JSON instead of tables");
  command->callback([&context, arguments, tensors] {
    arguments->list = tensors->count() > 0;
    context.run = [arguments] { return run_inspect(*arguments); };
  });
}

}  // namespace trefoil::cli
