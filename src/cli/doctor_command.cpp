#include "cli/command.h"
#include "cli/model_argument.h"
#include "trefoil/doctor.h"
#include "trefoil/self_check.h"

namespace trefoil::cli {
namespace {

struct DoctorArguments {
  std::string folder = ".";
  bool json = false;
};

int run_doctor(const DoctorArguments& arguments) {
  DoctorOptions options;
  options.folder = expand_home(arguments.folder);
  options.libraries = {{"trefoil", TREFOIL_VERSION}, {"linear algebra", linear_algebra_library()}};
  options.checks = {{"matrix product, every instruction set", check_matmul},
                    {"linear algebra library", check_linear_algebra}};
  const DoctorReport report = doctor(options);
  print(arguments.json ? to_json(report) : to_text(report));
  return report.ok() ? kOk : kCheckFailed;
}

}  // namespace

void add_doctor(CLI::App& program, Context& context) {
  CLI::App* command = program.add_subcommand("doctor", "what this machine offers, and whether it computes correctly");
  const auto arguments = std::make_shared<DoctorArguments>();
  command->add_option("FOLDER", arguments->folder, "where checkpoints would be written")->capture_default_str();
  command->add_flag("--json", arguments->json, "JSON instead of text");
  command->callback([&context, arguments] { context.run = [arguments] { return run_doctor(*arguments); }; });
}

}  // namespace trefoil::cli
