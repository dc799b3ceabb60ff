// How a model is held and run: --kernels, --trunk, --experts, --memory, --model-dirs, --read-mode, --no-lookahead.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "trefoil/engine.h"

namespace trefoil::cli {

// What `engine` holds are the defaults. --memory is parsed by finish_engine_options(), after the command line is read.
struct EngineArguments {
  EngineOptions options;
  std::string memory;
};
void add_engine_options(CLI::App& command, EngineArguments& engine);
void add_prefill_option(CLI::App& command, EngineArguments& engine);  // --prefill-chunk
EngineOptions finish_engine_options(const EngineArguments& engine, int threads);

}  // namespace trefoil::cli
