// A MoE layer for the benchmarks, without a model: experts of any width with MXFP4 weights drawn from a Gaussian, and
// latents as correlated as those of a trained model. Made from a seed; the same everywhere up to the rounding of products.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "checkpoint/checkpoint.h"
#include "quantize/expert_job.h"

namespace trefoil::bench {

struct LayerSize {
  int64_t tokens = 18725;  // of every expert: 512 rows of 2048 tokens, 16 of 896 experts each
  int64_t latent = 3584;   // input width of w1 and w3
  int64_t inner = 3072;    // of w2
  int64_t experts = 2;
};

// What the trefoil recipe is given beside what stock has. kPlain: nothing, so that losses can be compared; kWhole: token
// weights, the original stream and w2's output metric.
enum class Evidence { kPlain, kWhole };

class SyntheticLayer {
 public:
  SyntheticLayer(const LayerSize& size, Evidence evidence, uint64_t seed, ThreadPool& pool);
  ~SyntheticLayer();
  SyntheticLayer(const SyntheticLayer&) = delete;
  SyntheticLayer& operator=(const SyntheticLayer&) = delete;

  // Refers to this object.
  LayerInputs inputs(const QuantizeOptions& options) const;
  const RoutedExpert& expert(int64_t expert) const { return experts_[static_cast<size_t>(expert)]; }
  const ExpertTokens& tokens() const { return tokens_; }
  const ActivationFile& latent() const { return *latent_; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  const ModelConfig& config() const { return config_; }

 private:
  void write_experts(const LayerSize& size, uint64_t seed);
  void draw_latents(const LayerSize& size, Evidence evidence, uint64_t seed, ThreadPool& pool);
  void draw_metric(const LayerSize& size, uint64_t seed);

  std::filesystem::path folder_;  // temporary, removed with this object
  std::optional<Checkpoint> checkpoint_;
  ModelConfig config_;
  std::vector<RoutedExpert> experts_;
  std::optional<ActivationFile> latent_, original_latent_;
  std::vector<float> shared_hessian_;
  ExpertTokens tokens_;
  OutputMetric metric_;
};

}  // namespace trefoil::bench
