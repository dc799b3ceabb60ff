#include "synthetic_layer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/splitmix64.h"
#include "checkpoint/safetensors.h"
#include "quantize/expert_step.h"
#include "quantize/hessian.h"
#include "quantize/linalg.h"
#include "tensor/bf16.h"
#include "tensor/mxfp4.h"

namespace trefoil::bench {
namespace {

constexpr int64_t kFactors = 256;       // directions that latents share
constexpr double kSpectrum = 0.4;       // the i-th has amplitude i^-0.4: eigenvalues i^-0.8
constexpr double kChannelSpread = 0.4;  // channels are scaled by exp(0.4 N)
constexpr double kOwnNoise = 1.0;       // of a channel, beside what it shares
constexpr double kDrift = 0.05;         // between the streams, relative to a channel's scale
constexpr double kWeightScale = 0.02;
constexpr int64_t kHiddenPerLatent = 2;  // routed_expert_up_proj is [2 latent, latent], as in Kimi-K3

// Box-Muller.
class Gaussian {
 public:
  explicit Gaussian(uint64_t seed) : random_(seed) {}
  float next() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const double radius = std::sqrt(-2.0 * std::log(uniform())), angle = 2.0 * std::numbers::pi * uniform();
    spare_ = static_cast<float>(radius * std::sin(angle));
    has_spare_ = true;
    return static_cast<float>(radius * std::cos(angle));
  }
  void fill(std::span<float> values) {
    for (float& value : values) value = next();
  }

 private:
  double uniform() {  // (0, 1]
    return static_cast<double>((random_.next() >> 11) + 1) * 0x1p-53;
  }
  SplitMix64 random_;
  float spare_ = 0;
  bool has_spare_ = false;
};

uint8_t nearest_e2m1(float value) {
  const float magnitude = std::abs(value);
  uint8_t best = 0;
  for (uint8_t code = 1; code < 8; ++code) {
    if (std::abs(kE2m1[code] - magnitude) < std::abs(kE2m1[best] - magnitude)) best = code;
  }
  return static_cast<uint8_t>(value < 0 ? best | 8u : best);
}

// 32 Gaussian weights as the OCP conversion stores them: the scale's exponent is that of the largest magnitude, less 2.
void encode_group(Gaussian& random, uint8_t* packed, uint8_t* scale) {
  float group[kMxfp4GroupSize];
  random.fill(group);
  float largest = 0;
  for (float& value : group) largest = std::max(largest, std::abs(value *= static_cast<float>(kWeightScale)));
  const int exponent = std::ilogb(largest) - 2;
  *scale = static_cast<uint8_t>(exponent + 127);
  for (int64_t j = 0; j < kMxfp4GroupSize; j += 2) {
    const uint8_t low = nearest_e2m1(std::ldexp(group[j], -exponent));
    const uint8_t high = nearest_e2m1(std::ldexp(group[j + 1], -exponent));
    packed[j / 2] = static_cast<uint8_t>(low | (high << 4));
  }
}

std::string module_of(int64_t expert, ExpertPart part) {
  return expert_module("", 0, expert, part);
}

}  // namespace

SyntheticLayer::SyntheticLayer(const LayerSize& size, Evidence evidence, uint64_t seed, ThreadPool& pool)
    : folder_(std::filesystem::temp_directory_path() / fmt::format("trefoil-bench-{}", ::getpid())) {
  config_.activation_situ_beta = 4;
  config_.activation_situ_linear_beta = 25;
  std::filesystem::create_directories(folder_);
  write_experts(size, seed);
  checkpoint_ = Checkpoint::open(folder_);
  for (int64_t expert = 0; expert < size.experts; ++expert) {
    RoutedExpert& stored = experts_.emplace_back();
    for (ExpertPart part : kExpertParts)
      stored.linear[static_cast<size_t>(part)] = resolve_linear(*checkpoint_, module_of(expert, part));
  }
  draw_latents(size, evidence, seed, pool);
  shared_hessian_ = shared_hessian_of(*latent_, pool.num_threads(), pool);
  if (evidence == Evidence::kWhole) draw_metric(size, seed);
}

SyntheticLayer::~SyntheticLayer() {
  checkpoint_.reset();
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

LayerInputs SyntheticLayer::inputs(const QuantizeOptions& options) const {
  LayerInputs inputs;
  inputs.source = &*checkpoint_;
  inputs.config = &config_;
  inputs.options = &options;
  inputs.latent = &*latent_;
  inputs.original_latent = original_latent_ ? &*original_latent_ : nullptr;
  inputs.shared_hessian = shared_hessian_;
  inputs.w2_metric = metric_.rows > 0 ? &metric_ : nullptr;
  return inputs;
}

void SyntheticLayer::write_experts(const LayerSize& size, uint64_t seed) {
  std::vector<TensorPlan> plan;
  for (int64_t expert = 0; expert < size.experts; ++expert) {
    for (ExpertPart part : kExpertParts) {
      const int64_t rows = part == ExpertPart::kW2 ? size.latent : size.inner;
      const int64_t cols = part == ExpertPart::kW2 ? size.inner : size.latent;
      const std::string module = module_of(expert, part);
      plan.push_back({module + ".weight_packed", DType::kU8, {rows, cols / 2}});
      plan.push_back({module + ".weight_scale", DType::kU8, {rows, cols / kMxfp4GroupSize}});
    }
  }
  SafetensorsWriter writer(folder_ / "model.safetensors", plan);
  Gaussian random(seed);
  for (size_t i = 0; i < plan.size(); i += 2) {
    const int64_t groups = plan[i + 1].shape[0] * plan[i + 1].shape[1];
    std::vector<uint8_t> packed(static_cast<size_t>(groups * kMxfp4GroupSize / 2)), scale(static_cast<size_t>(groups));
    for (int64_t g = 0; g < groups; ++g)
      encode_group(random, packed.data() + g * kMxfp4GroupSize / 2, scale.data() + g);
    writer.write(plan[i].name, std::as_bytes(std::span(packed)));
    writer.write(plan[i + 1].name, std::as_bytes(std::span(scale)));
  }
  writer.commit();
}

void SyntheticLayer::draw_latents(const LayerSize& size, Evidence evidence, uint64_t seed, ThreadPool& pool) {
  std::vector<float> mix(static_cast<size_t>(kFactors * size.latent)), channel(static_cast<size_t>(size.latent));
  Gaussian random(seed ^ 1);
  random.fill(channel);
  for (float& gain : channel) gain = static_cast<float>(std::exp(kChannelSpread * static_cast<double>(gain)));
  random.fill(mix);
  for (int64_t i = 0; i < kFactors; ++i) {
    const auto amplitude = static_cast<float>(std::pow(static_cast<double>(i + 1), -kSpectrum));
    for (int64_t j = 0; j < size.latent; ++j)
      mix[static_cast<size_t>(i * size.latent + j)] *= amplitude * channel[static_cast<size_t>(j)];
  }
  const bool streams = evidence == Evidence::kWhole;
  latent_.emplace(folder_, "latent", size.tokens, size.latent, ActivationFile::Element::kBf16, RowAccess::kWrite);
  if (streams)
    original_latent_.emplace(folder_, "original", size.tokens, size.latent, ActivationFile::Element::kBf16,
                             RowAccess::kWrite);
  constexpr int64_t kBlock = 256;  // tokens drawn from a seed of their own, so that threads do not matter
  pool.parallel_ranges(size.tokens, kBlock, [&](int64_t begin, int64_t end) {
    Gaussian own(seed + 2 + static_cast<uint64_t>(begin));
    std::vector<float> factors(static_cast<size_t>((end - begin) * kFactors));
    own.fill(factors);
    std::vector<float> rows(static_cast<size_t>((end - begin) * size.latent)), originals(rows.size());
    gemm(Transpose::kNo, Transpose::kNo, end - begin, size.latent, kFactors, 1.0f, factors.data(), kFactors, mix.data(),
         size.latent, 0.0f, rows.data(), size.latent);
    for (size_t i = 0; i < rows.size(); ++i) {
      const float gain = channel[i % channel.size()];
      rows[i] = round_to_bf16(rows[i] + static_cast<float>(kOwnNoise) * gain * own.next());
      originals[i] = round_to_bf16(rows[i] + static_cast<float>(kDrift) * gain * own.next());
    }
    latent_->write(begin, rows);
    if (streams) original_latent_->write(begin, originals);
  });
  for (int64_t t = 0; t < size.tokens; ++t) {
    tokens_.token.push_back(t);
    tokens_.gate.push_back(0.0625f);
    tokens_.weight.push_back(streams ? std::exp(0.5f * random.next()) : 1.0f);
  }
  const double mean = std::accumulate(tokens_.weight.begin(), tokens_.weight.end(), 0.0) /
                      static_cast<double>(std::max<int64_t>(size.tokens, 1));
  for (float& weight : tokens_.weight) weight = static_cast<float>(static_cast<double>(weight) / mean);
}

void SyntheticLayer::draw_metric(const LayerSize& size, uint64_t seed) {
  std::vector<float> up(static_cast<size_t>(kHiddenPerLatent * size.latent * size.latent));
  Gaussian(seed ^ 3).fill(up);
  HessianAccumulator moments(size.latent);
  moments.add(up, {});
  metric_ = prepare_output_metric(moments.mean(), size.latent, 0.01);
}

}  // namespace trefoil::bench
