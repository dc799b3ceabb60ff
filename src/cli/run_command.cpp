#include <fmt/format.h>

#include <cstdio>

#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/text_input.h"
#include "trefoil/generate.h"

namespace trefoil::cli {
namespace {

struct RunArguments {
  std::string model;
  std::string prompt;
  std::string prompt_file;
  bool show_prompt = false;
  bool stats = false;
  GenerateOptions options;
};

int run_generation(Context& context, RunArguments& arguments) {
  GenerateOptions& o = arguments.options;
  o.model = resolve_model(arguments.model);
  o.prompt = arguments.prompt_file.empty() ? arguments.prompt : read_text_input(arguments.prompt_file);
  o.threads = context.threads;
  if (arguments.show_prompt) print(o.prompt);
  const GenerateResult result = generate(
      o,
      [&](std::string_view text) {
        print(text);
        return !context.stop.load(std::memory_order_relaxed);
      },
      context.progress.get());
  print("\n");
  if (arguments.stats) {
    const auto decoded = static_cast<double>(result.ids.size()) - 1;
    complain(fmt::format("{} prompt tokens in {:.2f} s, {} new tokens, {:.1f} tokens/s, ended by {}",
                         result.prompt_ids.size(), result.prefill_seconds, result.ids.size(),
                         result.decode_seconds > 0 ? decoded / result.decode_seconds : 0.0, to_string(result.finish)));
  }
  if (result.finish == FinishReason::kCancelled) throw Error(ErrorCode::kCancelled, "stopped as asked");
  return kOk;
}

}  // namespace

void add_run(CLI::App& program, Context& context) {
  CLI::App* command =
      program.add_subcommand("run", "continue a text, from any checkpoint this program reads")->alias("generate");
  const auto arguments = std::make_shared<RunArguments>();
  GenerateOptions& o = arguments->options;
  o.sampling.temperature = 1.0;
  add_model_argument(*command, arguments->model);
  CLI::Option* prompt = command->add_option("-p,--prompt", arguments->prompt, "the text to continue");
  CLI::Option* file =
      command->add_option("-f,--file", arguments->prompt_file, "read the text from this file; - is standard input");
  prompt->excludes(file);
  command->add_option("-n,--max-new-tokens,--n-predict", o.max_new_tokens, "tokens to generate at most")
      ->capture_default_str();
  command->add_option("-s,--seed", o.sampling.seed, "of the sampler")->check(not_negative())->capture_default_str();
  command->add_option("--temp,--temperature", o.sampling.temperature, "0 always takes the most likely token")
      ->capture_default_str();
  command->add_option("--top-p", o.sampling.top_p, "keep the likeliest tokens that together reach this probability")
      ->capture_default_str();
  command->add_option("--top-k", o.sampling.top_k, "keep this many of the likeliest tokens (0: all)")
      ->capture_default_str();
  command->add_option("--min-p", o.sampling.min_p, "keep tokens at least this likely, relative to the likeliest")
      ->capture_default_str();
  command->add_option("--stop", o.stop, "end before this text; may be repeated");
  command->add_flag("--markup", o.markup, "names of special tokens in the prompt are special tokens");
  command->add_flag("--ignore-eos", o.ignore_eos, "go on after the model's end tokens");
  command->add_option("--numerics", o.numerics, "bf16: as the release computes (default); f32")
      ->transform(
          CLI::CheckedTransformer(std::map<std::string, Numerics>{{"bf16", Numerics::kBf16}, {"f32", Numerics::kF32}}));
  command->add_option("--prefill-chunk", o.prefill_chunk, "prompt tokens run at once")->capture_default_str();
  command->add_flag("--show-prompt", arguments->show_prompt, "print the prompt before what follows it");
  command->add_flag("--stats", arguments->stats, "tokens and speed on standard error");
  command->callback([&context, arguments, prompt, file] {
    if (prompt->count() + file->count() == 0) throw CLI::RequiredError("--prompt or --file");
    context.run = [&context, arguments] { return run_generation(context, *arguments); };
  });
}

}  // namespace trefoil::cli
