#include "cli/engine_options.h"

#include "cli/choice.h"
#include "trefoil/size.h"

namespace trefoil::cli {

void add_engine_options(CLI::App& command, EngineArguments& engine) {
  EngineOptions& o = engine.options;
  choose<Numerics>(command.add_option("--numerics", o.numerics, "bf16: as the release computes (default); f32"),
                   {{"bf16", Numerics::kBf16}, {"f32", Numerics::kF32}});
  choose<KernelMode>(command.add_option("--kernels", o.kernels,
                                        "products with packed weights: exact (default), fast16, fast8, or reference, "
                                        "which decodes them"),
                     {{"exact", KernelMode::kExact},
                      {"fast16", KernelMode::kFast16},
                      {"fast8", KernelMode::kFast8},
                      {"reference", KernelMode::kReference}});
  choose<TrunkForm>(
      command.add_option("--trunk", o.trunk, "everything but the routed experts: bf16 as stored (default), or int8"),
      {{"bf16", TrunkForm::kBf16}, {"int8", TrunkForm::kInt8}});
  choose<ExpertPlacement>(
      command.add_option("--experts", o.experts, "where routed experts lie: auto (default), memory, or drive"),
      {{"auto", ExpertPlacement::kAuto}, {"memory", ExpertPlacement::kMemory}, {"drive", ExpertPlacement::kDrive}});
  command.add_option("--memory", engine.memory, "for all of the process, as 64GiB (default: what the machine leaves)");
  command.add_option("--model-dirs", o.model_dirs, "copies of the model on other drives, to read experts from as well")
      ->delimiter(',');
  one_of(command.add_option("--read-mode", o.read_mode, "of the drive; auto finds out what works"),
         {"auto", "io_uring", "pread", "buffered"});
  command.add_flag("!--no-lookahead", o.lookahead, "do not guess the next layer's experts");
  command
      .add_option("-c,--context,--ctx-size", o.context, "tokens a sequence may have, as the memory plan counts them")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void add_prefill_option(CLI::App& command, EngineArguments& engine) {
  command.add_option("--prefill-chunk", engine.options.prefill_chunk, "prompt tokens run at once")
      ->capture_default_str();
}

EngineOptions finish_engine_options(const EngineArguments& engine, int threads) {
  EngineOptions options = engine.options;
  if (!engine.memory.empty()) options.memory_bytes = parse_size(engine.memory);
  options.threads = threads;
  return options;
}

}  // namespace trefoil::cli
