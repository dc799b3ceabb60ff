#include "quantize/expert_job.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "model/model.h"
#include "quantize/hessian.h"
#include "quantize/recipe.h"
#include "quantize/solve.h"

namespace trefoil {
namespace {

constexpr auto kW1 = static_cast<size_t>(ExpertPart::kW1);
constexpr auto kW2 = static_cast<size_t>(ExpertPart::kW2);
constexpr auto kW3 = static_cast<size_t>(ExpertPart::kW3);

using Matrices = std::array<std::vector<float>, 3>;  // by ExpertPart

// The Hessian of one matrix, or of w1 and w3, with what was done to it.
struct Moments {
  std::vector<float> hessian;
  std::vector<float> cross;  // empty without a mismatch target
  double n_eff = 0;
  double lambda = 0;
  double target_alpha = 0;  // of the mismatch target
  double dampening_frac = 0;
  bool replaced_by_layer = false;  // no tokens: the layer's shared Hessian stands in
};

class ExpertJob {
 public:
  ExpertJob(const LayerInputs& inputs, int64_t expert, const RoutedExpert& stored, const ExpertTokens& tokens)
      : inputs_(inputs),
        options_(*inputs.options),
        expert_(expert),
        stored_(stored),
        tokens_(tokens),
        latent_(stored.part(ExpertPart::kW1).in_features),
        inner_(stored.part(ExpertPart::kW1).out_features),
        numerics_(options_.numerics) {
    for (ExpertPart part : kExpertParts) original_[static_cast<size_t>(part)] = decode(stored.part(part));
  }

  ExpertResult run_rtn() {
    for (ExpertPart part : kExpertParts) finish(part, solve(input_of(part, {}), std::span<const float>(), rtn()), {});
    for (MatrixRecord& record : result_.record) record.fallback.clear();  // rounding is this recipe's own treatment
    return std::move(result_);
  }

  ExpertResult run() {
    const std::vector<float> z = gather(*inputs_.latent);
    const std::vector<float> z0 = has_target() ? gather(*inputs_.original_latent) : std::vector<float>();
    quantize_gate_and_up(z, z0);
    const std::vector<float> quantized_hidden = hidden(quantized_, z);
    quantize_down(z, z0, quantized_hidden);
    return std::move(result_);
  }

 private:
  bool is_trefoil() const { return options_.recipe == QuantizeRecipe::kTrefoil; }
  bool has_target() const { return inputs_.original_latent != nullptr; }

  SolveOptions rtn() const { return rtn_options(); }

  SolveOptions solve_options(const Moments& moments) const {
    if (!is_trefoil()) {
      SolveOptions stock = stock_options(options_.stock_zero_mask && tokens_.count() > 0);
      stock.dampening_frac = options_.dampening_frac;
      return stock;
    }
    const bool positive = options_.scales == QuantizeOptions::Scales::kPositive;
    SolveOptions trefoil = trefoil_options(moments.dampening_frac, positive ? ScaleSign::kPositive : ScaleSign::kAny);
    trefoil.refine_rounds = options_.tuning.refine_rounds;
    return trefoil;
  }

  std::vector<float> decode(const StoredLinear& linear) const {
    std::vector<float> weight(static_cast<size_t>(linear.out_features * linear.in_features));
    decode_linear(*inputs_.source, linear, 0, linear.out_features, weight);
    return weight;
  }

  // The rows of this expert's tokens.
  std::vector<float> gather(const ActivationFile& latent) const {
    std::vector<float> rows(static_cast<size_t>(tokens_.count() * latent_));
    latent.gather(tokens_.token, rows);
    return rows;
  }

  ExpertWeights weights(const Matrices& matrices) const {
    return {matrices[kW1], matrices[kW3], matrices[kW2], latent_, inner_};
  }

  // situ(w1 z, w3 z): the inputs of w2.
  std::vector<float> hidden(const Matrices& matrices, std::span<const float> z) const {
    std::vector<float> out(static_cast<size_t>(tokens_.count() * inner_));
    expert_hidden(weights(matrices), *inputs_.config, numerics_, z, tokens_.count(), out);
    return out;
  }

  SolveInput input_of(ExpertPart part, std::span<const float> target) const {
    const StoredLinear& linear = stored_.part(part);
    return {linear.out_features,
            linear.in_features,
            options_.group_size,
            options_.num_bits,
            original_[static_cast<size_t>(part)],
            target};
  }

  Moments moments_of(std::span<const float> inputs, std::span<const float> original_inputs, int64_t width) const {
    Moments moments;
    HessianAccumulator hessian(width);
    hessian.add(inputs, tokens_.weight);
    moments.hessian = hessian.mean();
    moments.n_eff = hessian.effective_tokens();
    if (is_trefoil()) moments.lambda = shrinkage_lambda(width, moments.n_eff, options_.tuning.shrinkage);
    // A target learnt from few tokens follows their noise: it moves as far as the expert's own tokens are trusted.
    moments.target_alpha = options_.tuning.target_alpha * (1 - moments.lambda);
    if (has_target() && moments.target_alpha > 0) {
      CrossAccumulator cross(width);
      cross.add(original_inputs, inputs, tokens_.weight);
      moments.cross = cross.mean();
    }
    return moments;
  }

  // W*, or empty for W itself.
  std::vector<float> target_of(ExpertPart part, const Moments& moments) const {
    if (moments.cross.empty()) return {};
    const StoredLinear& linear = stored_.part(part);
    return mismatch_target(original_[static_cast<size_t>(part)], moments.cross, moments.hessian, linear.out_features,
                           linear.in_features, moments.target_alpha);
  }

  void quantize_gate_and_up(std::span<const float> z, std::span<const float> z0) {
    Moments moments = moments_of(z, z0, latent_);
    if (is_trefoil()) {
      shrink_towards(moments.hessian, inputs_.shared_hessian, latent_, moments.lambda);
      moments.dampening_frac = dampening_after_shrinkage(moments.lambda, options_.dampening_frac);
      moments.replaced_by_layer = tokens_.count() == 0;
    }
    const SolveOptions solve_with = solve_options(moments);
    const PreparedHessian prepared = prepare_hessian(moments.hessian, latent_, solve_with);
    for (ExpertPart part : {ExpertPart::kW1, ExpertPart::kW3}) {
      const std::vector<float> target = target_of(part, moments);
      finish(part, solve(input_of(part, target), prepared, solve_with), moments);
    }
  }

  void quantize_down(std::span<const float> z, std::span<const float> z0, std::span<const float> quantized_hidden) {
    const bool sequential = is_trefoil() && options_.tuning.w2_sequential;
    const std::vector<float> original_hidden = sequential ? std::vector<float>() : hidden(original_, z);
    const std::vector<float> wanted_hidden = has_target() ? hidden(original_, z0) : std::vector<float>();
    Moments moments =
        moments_of(sequential ? quantized_hidden : std::span<const float>(original_hidden), wanted_hidden, inner_);
    if (is_trefoil()) moments.dampening_frac = dampening_without_target(moments.lambda, options_.dampening_frac);
    const SolveOptions solve_with = solve_options(moments);
    const PreparedHessian prepared = prepare_hessian(moments.hessian, inner_, solve_with);
    moments.lambda = 0;  // nothing to shrink towards: an expert's hidden units are its own
    const std::vector<float> target = target_of(ExpertPart::kW2, moments);
    const SolveInput input = input_of(ExpertPart::kW2, target);
    finish(ExpertPart::kW2,
           inputs_.w2_metric != nullptr ? solve_two_sided(input, prepared, *inputs_.w2_metric, solve_with)
                                        : solve(input, prepared, solve_with),
           moments);
  }

  void finish(ExpertPart part, SolveResult solved, const Moments& moments) {
    MatrixRecord& record = result_.record[static_cast<size_t>(part)];
    record.expert = expert_;
    record.part = part;
    record.tokens = tokens_.count();
    record.n_eff = moments.n_eff;
    record.shrinkage = moments.lambda;
    record.damping = solved.damping_frac_used;
    record.loss = solved.loss;
    // Without inputs there is no loss to speak of; what is left is how far the weights moved.
    const bool has_evidence = tokens_.count() > 0 || moments.replaced_by_layer;
    record.relative_error = has_evidence ? solved.relative_error : solved.weight_error;
    record.weight_error = solved.weight_error;
    record.output_error = solved.output_error;
    record.rounds_kept = solved.refine_rounds_kept;
    record.dead_columns = solved.dead_columns;
    record.negative_scales = negative_share(solved.q.scale);
    if (solved.fallback != Fallback::kNone) {
      record.fallback = fmt::format("{}: {}", to_string(solved.fallback), solved.fallback_reason);
    } else if (moments.replaced_by_layer) {
      record.fallback = "layer-hessian: no tokens";
    }
    result_.encoded[static_cast<size_t>(part)] = encode(solved.q, encoding_of(options_).layout);
    if (options_.recipe != QuantizeRecipe::kRtn) quantized_[static_cast<size_t>(part)] = dequantize(solved.q);
  }

  static double negative_share(const std::vector<uint16_t>& scale) {
    const auto negative =
        std::count_if(scale.begin(), scale.end(), [](uint16_t bits) { return (bits & 0x8000u) != 0; });
    return scale.empty() ? 0 : static_cast<double>(negative) / static_cast<double>(scale.size());
  }

  const LayerInputs& inputs_;
  const QuantizeOptions& options_;
  int64_t expert_;
  const RoutedExpert& stored_;
  const ExpertTokens& tokens_;
  int64_t latent_;
  int64_t inner_;
  Numerics numerics_;
  Matrices original_;
  Matrices quantized_;
  ExpertResult result_;
};

}  // namespace

ExpertResult quantize_expert(const LayerInputs& inputs, int64_t expert, const RoutedExpert& stored,
                             const ExpertTokens& tokens) {
  try {
    ExpertJob job(inputs, expert, stored, tokens);
    return inputs.options->recipe == QuantizeRecipe::kRtn ? job.run_rtn() : job.run();
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("layer {} expert {}: {}", inputs.layer, expert, error.what()));
  }
}

}  // namespace trefoil
