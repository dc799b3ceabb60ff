#include "cli/command.h"

namespace trefoil::cli {

void add_version(CLI::App& program, Context& context) {
  CLI::App* command = program.add_subcommand("version", "print the version");
  command->callback([&context] {
    context.run = [] {
      print("trefoil " TREFOIL_VERSION "\n");
      return kOk;
    };
  });
}

}  // namespace trefoil::cli
