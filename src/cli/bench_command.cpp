#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/model_argument.h"
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

void add_model(CLI::App& bench, Context& context) {
  CLI::App* command = bench.add_subcommand(
      "model",
      "a model in memory: seconds and bytes of a decoded token by component, against this machine's read rate");
  const auto options = std::make_shared<BenchModelOptions>();
  const auto model = std::make_shared<std::string>();
  add_model_argument(*command, *model);
  const auto engine = std::make_shared<EngineArguments>();
  add_engine_options(*command, *engine);
  command->add_option("--sequences", engine->options.sequences, "decoded together")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--prompt-tokens", options->prompt_tokens, "run at once before")->capture_default_str();
  command->add_option("-n,--new-tokens", options->new_tokens, "decoded and timed one by one")->capture_default_str();
  command->add_option("-s,--seed", options->seed, "of the random token ids")
      ->check(not_negative())
      ->capture_default_str();
  command->callback([&context, options, model, engine] {
    context.run = [&context, options, model, engine] {
      options->model = resolve_model(*model);
      options->engine = finish_engine_options(*engine, context.threads);
      print(format_bench(bench_model(*options, context.progress.get())));
      return kOk;
    };
  });
}

}  // namespace

void add_bench(CLI::App& program, Context& context) {
  CLI::App* command = program.add_subcommand("bench", "measure this machine and the program's parts on it");
  command->require_subcommand(1);
  add_kernels(*command, context);
  add_model(*command, context);
}

}  // namespace trefoil::cli
