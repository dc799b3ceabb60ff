#include "cli/command.h"
#include "cli/model_argument.h"
#include "trefoil/status.h"

namespace trefoil::cli {

void add_status(CLI::App& program, Context& context) {
  struct Arguments {
    std::string output;
    bool json = false;
  };
  CLI::App* command = program.add_subcommand("status", "where a running or stopped quantize is; only reads");
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("OUT", arguments->output, "output folder of quantize")->required();
  command->add_flag("--json", arguments->json, "JSON instead of text");
  command->callback([&context, arguments] {
    context.run = [arguments] {
      const JobStatus status = read_status(expand_home(arguments->output));
      print(arguments->json ? to_json(status) : to_text(status));
      return kOk;
    };
  });
}

}  // namespace trefoil::cli
