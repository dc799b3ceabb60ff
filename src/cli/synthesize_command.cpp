#include <fmt/format.h>

#include "cli/choice.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "trefoil/size.h"
#include "trefoil/synthesize.h"

namespace trefoil::cli {
namespace {

struct SynthesizeArguments {
  std::string shard_size;
  SynthesizeOptions options;
};

std::string summary_text(const SynthesizeOptions& options, const SynthesizeResult& result) {
  const auto gb = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  std::string text =
      fmt::format("{} {}: {} layers, {} of them with {} routed experts, {} per token\n",
                  options.dry_run ? "would write" : "wrote", options.output.string(), result.num_hidden_layers,
                  result.num_moe_layers, result.num_experts, result.num_experts_per_token);
  text += fmt::format("  {} tensors, {} bytes ({:.3f} GB), {} of them routed experts\n", result.num_tensors,
                      result.tensor_bytes, gb(result.tensor_bytes), result.expert_bytes);
  text += fmt::format("  {} shards, the largest {} bytes ({:.3f} GB)\n", result.num_shards, result.largest_shard_bytes,
                      gb(result.largest_shard_bytes));
  text += "  random weights; vision tower and projector are left out\n";
  if (options.dry_run) text += "dry run: nothing was written\n";
  return text;
}

int run_synthesize(Context& context, const SynthesizeArguments& arguments) {
  SynthesizeOptions options = arguments.options;
  options.output = expand_home(options.output.string());
  options.config = expand_home(options.config.string());
  if (!arguments.shard_size.empty()) options.shard_size = parse_size(arguments.shard_size);
  if (!arguments.shard_size.empty() && options.shard_size == 0)
    throw Error(ErrorCode::kInvalidArgument, "--shard-size " + arguments.shard_size + ": nothing fits into that");
  options.threads = context.num_threads();
  options.progress = context.progress.get();
  options.stop = &context.stop;
  print(summary_text(options, synthesize(options)));
  return kOk;
}

}  // namespace

void add_synthesize(CLI::App& program, Context& context) {
  CLI::App* command = program.add_subcommand("synthesize", "a checkpoint in the shape of Kimi-K3 with random weights");
  const auto arguments = std::make_shared<SynthesizeArguments>();
  SynthesizeOptions& o = arguments->options;
  command->add_option("-o,--output", o.output, "folder to write")->required();
  command->add_option("--layers", o.layers,
                      "how many of the config's layers, or the kind of each: kda, mla, dense-kda, dense-mla "
                      "(default: all)");
  command->add_option("--experts", o.num_experts, "routed experts of a layer (default: the config's)")
      ->check(CLI::PositiveNumber);
  command->add_option("--experts-per-token", o.num_experts_per_token, "experts of a token (default: the config's)")
      ->check(CLI::PositiveNumber);
  command->add_option("--config", o.config, "config.json with the widths (default: Kimi-K3's own)");
  command->add_option("--vocab", o.vocab_size, "tokens of the vocabulary")->capture_default_str();
  command->add_option("--seed", o.seed, "of every random number")->check(not_negative())->capture_default_str();
  choose<SyntheticRouting>(
      command->add_option("--routing", o.routing, "how often experts are chosen: flat (default) or lognormal"),
      {{"flat", SyntheticRouting::kFlat}, {"lognormal", SyntheticRouting::kLogNormal}});
  command->add_option("--shard-size", arguments->shard_size,
                      "bytes of a shard, as 5GB (default: the release's, a shard a layer)");
  command->add_flag("--dry-run", o.dry_run, "print the sizes and write nothing");
  command->add_flag("--overwrite", o.overwrite, "replace an output this program wrote");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return run_synthesize(context, *arguments); }; });
}

}  // namespace trefoil::cli
