#include "cli/command.h"
#include "trefoil/bench.h"

namespace trefoil::cli {
namespace {

void add_kernels(CLI::App& bench, Context& context) {
  CLI::App* command = bench.add_subcommand(
      "kernels", "the expert kernels against this machine's read rate and arithmetic peak, measured beside them");
  const auto options = std::make_shared<BenchKernelsOptions>();
  command->add_option("--rounds", options->rounds, "of (ceiling, kernel, ceiling) for each row")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--rows", options->rows, "of one matrix")->check(CLI::Range(32, 1 << 20))->capture_default_str();
  command->add_option("--cols", options->cols, "of one matrix")->check(CLI::Range(64, 1 << 20))->capture_default_str();
  command->add_option("--tokens", options->tokens, "how many at once")->check(CLI::Range(1, 1 << 16))->delimiter(',');
  command->add_option("--only", options->only, "rows whose name contains this: 'int3', 'exact, 1 token'");
  command->callback([&context, options] {
    context.run = [&context, options] {
      options->threads = context.threads;
      print(format_bench(bench_kernels(*options, context.progress.get())));
      return kOk;
    };
  });
}

}  // namespace

void add_bench(CLI::App& program, Context& context) {
  CLI::App* command = program.add_subcommand("bench", "measure this machine and the program's parts on it");
  command->require_subcommand(1);
  add_kernels(*command, context);
}

}  // namespace trefoil::cli
