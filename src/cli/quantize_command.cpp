#include <fmt/format.h>

#include "cli/choice.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "trefoil/quantize.h"
#include "trefoil/size.h"

namespace trefoil::cli {
namespace {

struct QuantizeArguments {
  std::string model;
  std::string layers;
  std::string memory;
  std::vector<std::string> calibration;  // FILE or FILE=WEIGHT
  std::string mpi;
  QuantizeOptions options;
};

QuantizeOptions::LayerRange parse_layers(const std::string& text) {
  QuantizeOptions::LayerRange range;
  char rest = 0;
  long long begin = 0;
  long long end = 0;
  if (std::sscanf(text.c_str(), "%lld:%lld%c", &begin, &end, &rest) != 2 || begin < 0 || end <= begin)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("--layers '{}': expected A:B with 0 <= A < B", text));
  range.begin = begin;
  range.end = end;
  return range;
}

// FILE=WEIGHT, or FILE where what follows the last "=" is no number or a file of the whole name exists. Where what stands
// before it is a file, the weight is what is wrong.
CalibrationSource parse_calibration(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || std::filesystem::exists(expand_home(text))) return {expand_home(text)};
  const std::string number = text.substr(equals + 1);
  char* end = nullptr;
  const double weight = std::strtod(number.c_str(), &end);
  if (number.empty() || *end != '\0') {
    if (std::filesystem::exists(expand_home(text.substr(0, equals)))) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("--calibration {}: '{}' is no weight (FILE=WEIGHT, as {}=2)",
                                                           text, number, text.substr(0, equals)));
    }
    return {expand_home(text)};
  }
  return {expand_home(text.substr(0, equals)), weight};
}

void add_calibration_options(CLI::App& command, QuantizeArguments& arguments) {
  QuantizeOptions& o = arguments.options;
  command.add_option(
      "--calibration", arguments.calibration,
      "JSONL or text files to calibrate on, FILE or FILE=WEIGHT, or one frozen set (every recipe but rtn)");
  command.add_option("--num-calibration-samples", o.num_calibration_samples, "rows of calibration tokens")
      ->capture_default_str();
  command.add_option("--max-seq-length", o.max_seq_length, "tokens of a row")->capture_default_str();
  command.add_option("--save-calibration", o.save_calibration,
                     "write the calibration ids there, to calibrate on again");
  command.add_option("--held-out", o.held_out,
                     "texts meant for judging: say whether the calibration holds parts of them");
  command.add_flag("--refuse-overlap", o.refuse_overlap, "stop if it does");
}

void add_recipe_options(CLI::App& command, QuantizeOptions& o) {
  choose<QuantizeRecipe>(
      command.add_option("--recipe", o.recipe,
                         "trefoil (default), stock (llm-compressor 0.12.0.1's arithmetic) or rtn"),
      {{"trefoil", QuantizeRecipe::kTrefoil}, {"stock", QuantizeRecipe::kStock}, {"rtn", QuantizeRecipe::kRtn}});
  one_of(command.add_option("--bits", o.num_bits, "bits of a code"), {"2", "3", "4", "8"})->capture_default_str();
  command.add_option("--group-size", o.group_size, "input columns that share a scale")->capture_default_str();
  command.add_option("--dampening-frac", o.dampening_frac, "added to the Hessian's diagonal, of its mean")
      ->capture_default_str();
  command.add_option("--actorder", o.actorder, "order of the columns; only static (alias weight)")
      ->capture_default_str();
  choose<QuantizeOptions::Scales>(
      command.add_option("--scales", o.scales,
                         "any: a scale may be negative (default); positive: for readers that need it"),
      {{"any", QuantizeOptions::Scales::kAny}, {"positive", QuantizeOptions::Scales::kPositive}});
  command.add_flag("--stock-zero-mask", o.stock_zero_mask,
                   "stock: no error compensation on zero weights, as published");
}

// Rank 0 draws the progress of all, which the ledger gives it. A note says whose it is.
class RankProgress : public ProgressSink {
 public:
  RankProgress(std::unique_ptr<ProgressSink> inner, const MpiRank& rank)
      : inner_(std::move(inner)), is_first_(rank.rank() == 0), name_(rank.name()) {}

  void update(std::string_view stage, int64_t done, int64_t total) override {
    if (is_first_) inner_->update(stage, done, total);
  }
  void update_job(std::string_view stage, int64_t done, int64_t total, const ProgressRates& rates) override {
    if (is_first_) inner_->update_job(stage, done, total, rates);
  }
  void note(std::string_view message) override { inner_->note(fmt::format("{}: {}", name_, message)); }

 private:
  std::unique_ptr<ProgressSink> inner_;
  bool is_first_;
  std::string name_;
};

void join_ranks(const std::string& mpi, Context& context, QuantizeOptions& o) {
  const MpiRank& rank = context.mpi.emplace(MpiRank::join(mpi));
  complain_as(rank.name());
  context.progress = std::make_unique<RankProgress>(std::move(context.progress), rank);
  o.join = true;
  o.place = {rank.rank(), rank.size()};
  o.meet = [&rank] { rank.barrier(); };
}

int run_quantize(Context& context, QuantizeArguments& arguments) {
  QuantizeOptions& o = arguments.options;
  o.source = resolve_model(arguments.model);
  o.output = expand_home(o.output.string());
  for (const std::string& text : arguments.calibration) o.calibration.push_back(parse_calibration(text));
  for (std::filesystem::path& file : o.held_out) file = expand_home(file.string());
  if (!o.save_calibration.empty()) o.save_calibration = expand_home(o.save_calibration.string());
  o.threads = context.threads;
  o.work_dir = expand_home(o.work_dir.string());
  o.stop = &context.stop;
  if (!arguments.layers.empty()) o.layers = parse_layers(arguments.layers);
  if (!arguments.memory.empty()) o.memory_bytes = parse_size(arguments.memory);
  if (!arguments.memory.empty() && o.memory_bytes == 0)
    throw Error(ErrorCode::kInvalidArgument, "--memory " + arguments.memory + ": nothing can run in that");
  if (!arguments.mpi.empty()) join_ranks(arguments.mpi, context, o);
  try {
    const QuantizeSummary summary = quantize(o, context.progress.get());
    if (o.place.rank == 0) print(summary.markdown);
    return kOk;
  } catch (const Error& stopped) {
    if (stopped.code() != ErrorCode::kCancelled) throw;
    context.progress.reset();
    complain(stopped.what());
    return kResumable;
  }
}

}  // namespace

void add_quantize(CLI::App& program, Context& context) {
  CLI::App* command =
      program.add_subcommand("quantize", "MXFP4 experts to calibrated 3-bit, in compressed-tensors format")
          ->alias("convert");
  const auto arguments = std::make_shared<QuantizeArguments>();
  QuantizeOptions& o = arguments->options;
  add_model_argument(*command, arguments->model);
  command->add_option("-o,--output", o.output, "folder to write")->required();
  add_calibration_options(*command, *arguments);
  add_recipe_options(*command, o);
  choose<QuantizeOptions::Layout>(
      command->add_option("--layout", o.layout,
                          "dense (compressed-tensors 0.18 and later, default) or padded (0.17.x)"),
      {{"dense", QuantizeOptions::Layout::kDense}, {"padded", QuantizeOptions::Layout::kPadded}});
  choose<Numerics>(
      command->add_option("--numerics", o.numerics, "of the calibration's forward pass: bf16 (default) or f32"),
      {{"bf16", Numerics::kBf16}, {"f32", Numerics::kF32}});
  command->add_option("--seed", o.seed, "which documents in which order; 0 keeps the files' order")
      ->check(not_negative())
      ->capture_default_str();
  command->add_option("--layers", arguments->layers, "quantize only decoder layers A:B (B excluded)");
  command->add_option("--memory", arguments->memory, "most memory to use, as 64GiB (default: what the machine gives)");
  command->add_option("--work-dir", o.work_dir, "where activations lie meanwhile (default: in the output folder)");
  command->add_flag("--join", o.join, "work beside the processes that were started with the same command");
  one_of(command->add_option("--mpi", arguments->mpi,
                             "join as the ranks that mpirun started: auto (by the launcher), openmpi or mpich"),
         {"auto", "openmpi", "mpich"});
  command->add_flag("--resume", o.resume, "refuse to begin anew; an interrupted run is always gone on with");
  command->add_flag("--dry-run", o.dry_run, "check everything and say what would be written, write nothing");
  command->add_flag("--overwrite", o.overwrite,
                    "replace an output this program wrote, or an interrupted run with other settings");
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return run_quantize(context, *arguments); }; });
}

}  // namespace trefoil::cli
