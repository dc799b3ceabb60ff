// The options that `run` and `chat` share.
#pragma once

#include <CLI/CLI.hpp>

#include "trefoil/generate.h"

namespace trefoil::cli {

// --seed, --temp, --top-p, --top-k, --min-p; what `sampling` holds is the default.
void add_sampling_options(CLI::App& command, SamplingOptions& sampling);

// --max-new-tokens.
void add_length_option(CLI::App& command, int64_t& max_new_tokens, const std::string& what);

}  // namespace trefoil::cli
