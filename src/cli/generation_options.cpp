#include "cli/generation_options.h"

#include "cli/command.h"

namespace trefoil::cli {

void add_sampling_options(CLI::App& command, SamplingOptions& sampling) {
  command.add_option("-s,--seed", sampling.seed, "of the sampler")->check(not_negative())->capture_default_str();
  command.add_option("--temp,--temperature", sampling.temperature, "0 always takes the most likely token")
      ->capture_default_str();
  command.add_option("--top-p", sampling.top_p, "keep the likeliest tokens that together reach this probability")
      ->capture_default_str();
  command.add_option("--top-k", sampling.top_k, "keep this many of the likeliest tokens (0: all)")
      ->capture_default_str();
  command.add_option("--min-p", sampling.min_p, "keep tokens at least this likely, relative to the likeliest")
      ->capture_default_str();
}

void add_length_option(CLI::App& command, int64_t& max_new_tokens, const std::string& what) {
  command.add_option("-n,--max-new-tokens,--n-predict", max_new_tokens, what)->capture_default_str();
}

}  // namespace trefoil::cli
