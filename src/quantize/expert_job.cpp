#include "quantize/expert_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "model/model.h"
#include "quantize/hessian.h"
#include "quantize/recipe.h"
#include "quantize/solve.h"

namespace trefoil {
namespace {

constexpr auto kW1 = static_cast<size_t>(ExpertPart::kW1);
constexpr auto kW3 = static_cast<size_t>(ExpertPart::kW3);

size_t at(int64_t index) {
  return static_cast<size_t>(index);
}

using Matrices = std::array<std::vector<float>, 3>;  // by ExpertPart

constexpr int64_t kTokensAtOnce = 4096;  // gathered, run and added to the moments together; plan counts with it

// The Hessian of one matrix, or of w1 and w3, with what was done to it.
struct Moments {
  std::vector<float> hessian;
  std::vector<float> mismatch;  // mismatch_map(); empty without a mismatch target
  double n_eff = 0;
  double lambda = 0;
  double target_alpha = 0;  // of the mismatch target
  double dampening_frac = 0;
  bool replaced_by_layer = false;  // no tokens: the layer's shared Hessian stands in
};

// Sums over the tokens of an expert, some tokens at a time.
class MomentSums {
 public:
  MomentSums(int64_t width, bool with_cross, PhaseTimes& times) : width_(width), times_(times) {
    hessian_.emplace(width);
    if (with_cross) cross_.emplace(width);
  }

  // inputs [tokens, width]; wanted: of the original stream, used only with a cross moment.
  void add(std::span<const float> inputs, std::span<const float> wanted, std::span<const float> weights) {
    const double square = product_flops(static_cast<int64_t>(weights.size()), width_, width_);
    {
      const PhaseTimer timer(times_, Phase::kMoments, square / 2);
      hessian_->add(inputs, weights);
    }
    if (!cross_) return;
    const PhaseTimer timer(times_, Phase::kCross, square);
    cross_->add(wanted, inputs, weights);
  }

  double effective_tokens() const { return hessian_->effective_tokens(); }

  // H; ends the sum, whose memory is given back.
  std::vector<float> take_hessian() {
    const PhaseTimer timer(times_, Phase::kMoments);
    std::vector<float> hessian = hessian_->mean();
    hessian_.reset();
    return hessian;
  }

  // mismatch_map() for Linears quantized against `hessian`, empty without a cross moment; ends that sum.
  std::vector<float> take_mismatch(std::span<const float> hessian) {
    if (!cross_) return {};
    const PhaseTimer timer(times_, Phase::kTarget, product_flops(width_, width_, width_) * (1 + 1.0 / 6));
    std::vector<float> cross = cross_->mean();
    cross_.reset();
    return mismatch_map(std::move(cross), hessian, width_);
  }

 private:
  int64_t width_;
  std::optional<HessianAccumulator> hessian_;
  std::optional<CrossAccumulator> cross_;
  PhaseTimes& times_;
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
    for (ExpertPart part : kExpertParts) {
      const PhaseTimer timer(times_of(part), Phase::kDecode);
      original_[static_cast<size_t>(part)] = decode(stored.part(part));
    }
  }

  ExpertResult run_rtn() {
    for (ExpertPart part : kExpertParts) finish(part, solve(input_of(part, {}), std::span<const float>(), rtn()), {});
    for (MatrixRecord& record : result_.record) record.fallback.clear();  // rounding is this recipe's own treatment
    return std::move(result_);
  }

  ExpertResult run() {
    quantize_gate_and_up();
    quantize_down();
    return std::move(result_);
  }

 private:
  PhaseTimes& times_of(ExpertPart part) { return part == ExpertPart::kW2 ? result_.times.down : result_.times.gate_up; }
  bool is_trefoil() const { return options_.recipe == QuantizeRecipe::kTrefoil; }
  // w2 sees what the quantized w1 and w3 make.
  bool is_sequential() const { return is_trefoil() && options_.tuning.w2_sequential; }
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

  // Rows [begin, end) of the expert's tokens.
  std::vector<float> gather(const ActivationFile& latent, int64_t begin, int64_t end) {
    const PhaseTimer timer(result_.times.gate_up, Phase::kGather);
    std::vector<float> rows(at((end - begin) * latent_));
    latent.gather(std::span(tokens_.token).subspan(at(begin), at(end - begin)), rows);
    return rows;
  }

  // situ(w1 z, w3 z): the inputs of w2. z [tokens, latent].
  void hidden(const Matrices& matrices, std::span<const float> z, std::span<float> out) {
    const int64_t tokens = static_cast<int64_t>(z.size()) / latent_;
    const PhaseTimer timer(result_.times.gate_up, Phase::kForward, 2 * product_flops(tokens, latent_, inner_));
    expert_hidden({matrices[kW1], matrices[kW3], latent_, inner_}, *inputs_.config, numerics_, z, tokens, out);
  }

  // body(begin, end, z, z0) for all tokens, some at a time; z0 is empty without a mismatch target.
  template <typename Body>
  void for_token_blocks(Body body) {
    for (int64_t begin = 0; begin < tokens_.count(); begin += kTokensAtOnce) {
      const int64_t end = std::min(begin + kTokensAtOnce, tokens_.count());
      const std::vector<float> z = gather(*inputs_.latent, begin, end);
      const std::vector<float> z0 = has_target() ? gather(*inputs_.original_latent, begin, end) : std::vector<float>();
      body(begin, end, z, z0);
    }
  }

  std::span<const float> token_weights(int64_t begin, int64_t end) const {
    return std::span(tokens_.weight).subspan(at(begin), at(end - begin));
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

  Moments start_moments(MomentSums& sums, int64_t width) const {
    Moments moments;
    moments.n_eff = sums.effective_tokens();
    moments.hessian = sums.take_hessian();
    if (is_trefoil()) moments.lambda = shrinkage_lambda(width, moments.n_eff, options_.tuning.shrinkage);
    // A target learnt from few tokens follows their noise: it moves as far as the expert's own tokens are trusted.
    moments.target_alpha = options_.tuning.target_alpha * (1 - moments.lambda);
    return moments;
  }

  // W*, or empty for W itself.
  std::vector<float> target_of(ExpertPart part, const Moments& moments) {
    if (moments.mismatch.empty()) return {};
    const StoredLinear& linear = stored_.part(part);
    const PhaseTimer timer(times_of(part), Phase::kTarget,
                           product_flops(linear.out_features, linear.in_features, linear.in_features));
    return mismatch_target(original_[static_cast<size_t>(part)], moments.mismatch, linear.out_features,
                           linear.in_features, moments.target_alpha);
  }

  PreparedHessian prepare(const Moments& moments, ExpertPart part, const SolveOptions& solve_with) {
    const int64_t width = stored_.part(part).in_features;
    const PhaseTimer timer(times_of(part), Phase::kFactor, product_flops(width, width, width) / 6);
    return prepare_hessian(moments.hessian, width, solve_with);
  }

  void quantize_gate_and_up() {
    MomentSums sums(latent_, has_target(), result_.times.gate_up);
    for_token_blocks([&](int64_t begin, int64_t end, std::span<const float> z, std::span<const float> z0) {
      sums.add(z, z0, token_weights(begin, end));
    });
    Moments moments = start_moments(sums, latent_);
    if (is_trefoil()) {
      shrink_towards(moments.hessian, inputs_.shared_hessian, latent_, moments.lambda);
      moments.dampening_frac = dampening_after_shrinkage(moments.lambda, options_.dampening_frac);
      moments.replaced_by_layer = tokens_.count() == 0;
    }
    if (moments.target_alpha > 0) moments.mismatch = sums.take_mismatch(moments.hessian);
    const SolveOptions solve_with = solve_options(moments);
    const PreparedHessian prepared = prepare(moments, ExpertPart::kW1, solve_with);
    for (ExpertPart part : {ExpertPart::kW1, ExpertPart::kW3}) {
      const std::vector<float> target = target_of(part, moments);
      finish(part, solve(input_of(part, target), prepared, solve_with), moments);
    }
  }

  void quantize_down() {
    Moments moments = moments_of_hidden();
    if (is_trefoil()) moments.dampening_frac = dampening_without_target(moments.lambda, options_.dampening_frac);
    const SolveOptions solve_with = solve_options(moments);
    const PreparedHessian prepared = prepare(moments, ExpertPart::kW2, solve_with);
    moments.lambda = 0;  // nothing to shrink towards: an expert's hidden units are its own
    const std::vector<float> target = target_of(ExpertPart::kW2, moments);
    const SolveInput input = input_of(ExpertPart::kW2, target);
    finish(ExpertPart::kW2,
           inputs_.w2_metric != nullptr ? solve_two_sided(input, prepared, *inputs_.w2_metric, solve_with)
                                        : solve(input, prepared, solve_with),
           moments);
  }

  // Runs w1 and w3 on all tokens: on the quantized stream for the inputs of w2, and the original ones on the original
  // stream for what w2 should have seen.
  Moments moments_of_hidden() {
    MomentSums sums(inner_, has_target(), result_.times.down);
    std::vector<float> inputs, wanted;
    for_token_blocks([&](int64_t begin, int64_t end, std::span<const float> z, std::span<const float> z0) {
      inputs.resize(at((end - begin) * inner_));
      hidden(is_sequential() ? quantized_ : original_, z, inputs);
      if (has_target()) {
        wanted.resize(inputs.size());
        hidden(original_, z0, wanted);
      }
      sums.add(inputs, wanted, token_weights(begin, end));
    });
    for (const size_t part : {kW1, kW3}) original_[part] = quantized_[part] = {};  // had their last use
    Moments moments = start_moments(sums, inner_);
    if (moments.target_alpha > 0) moments.mismatch = sums.take_mismatch(moments.hessian);
    return moments;
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
    times_of(part) += solved.times;
    const PhaseTimer timer(times_of(part), Phase::kEncode);
    result_.encoded[static_cast<size_t>(part)] = encode(solved.q, encoding_of(options_).layout);
    if (is_sequential() && part != ExpertPart::kW2) quantized_[static_cast<size_t>(part)] = dequantize(solved.q);
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
