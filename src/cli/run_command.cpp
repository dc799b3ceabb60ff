#include <fmt/format.h>
#include <unistd.h>

#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/generation_options.h"
#include "cli/model_argument.h"
#include "cli/terminal_text.h"
#include "cli/text_input.h"
#include "trefoil/generate.h"

namespace trefoil::cli {
namespace {

struct RunArguments {
  EngineArguments engine;
  std::string model;
  std::string prompt;
  std::string prompt_file;
  std::string load_state;
  std::string save_state;
  bool show_prompt = false;
  bool stats = false;
  GenerateOptions options;
};

double per_second(size_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

std::string stats_of(const GenerateResult& result) {
  const size_t decoded = result.ids.empty() ? 0 : result.ids.size() - 1;
  return fmt::format("{} prompt tokens in {:.2f} s, {} new tokens, {:.1f} tokens/s, ended by {}",
                     result.prompt_ids.size(), result.prefill_seconds, result.ids.size(),
                     per_second(decoded, result.decode_seconds), to_string(result.finish));
}

std::string memory_of(const MemoryPlan& plan) {
  return fmt::format("memory: {:.1f} MB planned of {:.1f} MB; {}", static_cast<double>(plan.total_bytes()) / 1e6,
                     static_cast<double>(plan.budget_bytes) / 1e6, plan.why);
}

std::string stream_of(const StreamReport& stream) {
  return fmt::format(
      "drive: {}; of the experts used {} were in memory before their step, {} on their way, {} not begun; {:.1f} MB "
      "read, "
      "{:.2f} s waited",
      stream.mode, stream.hits, stream.late_hits, stream.misses, static_cast<double>(stream.bytes_read) / 1e6,
      stream.wait_seconds);
}

int run_generation(Context& context, RunArguments& arguments) {
  GenerateOptions& o = arguments.options;
  o.model = resolve_model(arguments.model);
  o.prompt = arguments.prompt_file.empty() ? arguments.prompt : read_text_input(arguments.prompt_file);
  o.engine = finish_engine_options(arguments.engine, context.threads);
  o.load_state = expand_home(arguments.load_state);
  o.save_state = expand_home(arguments.save_state);
  o.stop_flag = &context.stop;
  // A pipe gets the text as it is; a terminal would obey it.
  const bool is_terminal = isatty(STDOUT_FILENO) == 1;
  const auto show = [is_terminal](std::string_view text) {
    is_terminal ? print(terminal_lines(text)) : print(text);
    return true;
  };
  if (arguments.show_prompt) show(o.prompt);
  const GenerateResult result = generate(o, show, context.progress.get());
  print("\n");
  if (arguments.stats) {
    complain(stats_of(result));
    complain(memory_of(result.plan));
    if (result.stream) complain(stream_of(*result.stream));
  }
  if (result.finish == FinishReason::kCancelled) {
    const bool is_lost = !o.save_state.empty() && !result.prompt_is_read;
    throw Error(ErrorCode::kCancelled,
                is_lost ? "stopped as asked, before the prompt was read: no state is saved" : "stopped as asked");
  }
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
  add_length_option(*command, o.max_new_tokens, "tokens to generate at most");
  add_sampling_options(*command, o.sampling);
  command->add_option("--stop", o.stop, "end before this text; may be repeated");
  command->add_flag("--markup", o.markup, "names of special tokens in the prompt are special tokens");
  command->add_flag("--ignore-eos", o.ignore_eos, "go on after the model's end tokens");
  add_engine_options(*command, arguments->engine);
  add_prefill_option(*command, arguments->engine);
  CLI::Option* load = command->add_option("--load-state", arguments->load_state, "go on behind this saved sequence");
  command->add_option("--save-state", arguments->save_state, "save the sequence, prompt and text, to go on later");
  command->add_flag("--show-prompt", arguments->show_prompt, "print the prompt before what follows it");
  command->add_flag("--stats", arguments->stats, "tokens and speed on standard error");
  command->callback([&context, arguments, prompt, file, load] {
    if (prompt->count() + file->count() + load->count() == 0)
      throw CLI::RequiredError("--prompt, --file or --load-state");
    context.run = [&context, arguments] { return run_generation(context, *arguments); };
  });
}

}  // namespace trefoil::cli
