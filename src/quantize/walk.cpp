#include "quantize/walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "model/checkpoint_weights.h"
#include "quantize/expert_step.h"
#include "quantize/layer_metric.h"
#include "quantize/unit_names.h"
#include "quantize/unit_payload.h"

namespace trefoil {
namespace {

ForwardOptions forward_options(const QuantizeOptions& options) {
  ForwardOptions forward;
  forward.numerics = options.numerics;
  forward.kda = KdaForm::kChunked;
  return forward;
}

const MoeLayer* find_layer(const std::vector<MoeLayer>& layers, int64_t layer) {
  const auto at = std::find_if(layers.begin(), layers.end(), [&](const MoeLayer& moe) { return moe.layer == layer; });
  return at == layers.end() ? nullptr : &*at;
}

// An expert is one thread's work.
void run_experts(const WalkInputs& in, const WalkStep& step, const std::vector<Unit>& units) {
  in.crew.run_side_by_side(stage_of(step, in.layers.back().layer), units, in.pool, in.experts_at_once);
}

class CalibratedWalk {
 public:
  explicit CalibratedWalk(const WalkInputs& inputs)
      : in_(inputs),
        store_(*inputs.activations),
        row_length_(inputs.calibration.row_length),
        rows_(static_cast<int64_t>(inputs.calibration.rows.size())),
        split_(split_layer_of(inputs.layers)),
        last_(inputs.layers.back().layer),
        model_(inputs.config, std::make_shared<CheckpointWeights>(inputs.source), forward_options(inputs.options),
               inputs.pool),
        fresh_(model_.new_sequence()) {}

  uint64_t run() {
    uint64_t most_space = 0;
    const std::vector<WalkStep> steps = walk_steps(in_.config, in_.options, in_.layers);
    for (size_t i = 0; i < steps.size(); ++i) {
      do_step(steps[i]);
      const bool ends_layer = i + 1 == steps.size() || steps[i + 1].layer != steps[i].layer;
      if (!ends_layer) continue;
      most_space = std::max(most_space, store_.bytes_used());
      store_.drop(steps[i].layer);
    }
    return most_space;
  }

 private:
  struct Block {
    int64_t first_row = 0, rows = 0;
    int64_t first_token = 0, tokens = 0;
  };

  std::vector<Block> blocks(int64_t rows_per_block) const {
    std::vector<Block> blocks;
    for (int64_t row = 0; row < rows_; row += rows_per_block) {
      const int64_t count = std::min(rows_per_block, rows_ - row);
      blocks.push_back({row, count, row * row_length_, count * row_length_});
    }
    return blocks;
  }

  void do_step(const WalkStep& step) {
    switch (step.kind) {
      case StepKind::kEmbedding:
        return embed(step);
      case StepKind::kAttention:
        return attention(step);
      case StepKind::kExpertPass:
        return pass(step);
      case StepKind::kSharedHessian:
        return run_units(step, {shared_hessian_unit(step)});
      case StepKind::kExperts:
        return solve(step);
      case StepKind::kCopying:
        return;  // of no layer
    }
  }

  void run_units(const WalkStep& step, const std::vector<Unit>& units) { in_.crew.run(stage_of(step, last_), units); }

  void embed(const WalkStep& step) {
    std::vector<Unit> units;
    for (const Block& block : blocks(in_.grain.unit_rows)) {
      units.push_back({unit_name(step.layer, step.name, block.first_row),
                       [this, block] {
                         std::vector<int32_t> ids;
                         for (int64_t row = 0; row < block.rows; ++row) {
                           const auto& from = in_.calibration.rows[static_cast<size_t>(block.first_row + row)];
                           ids.insert(ids.end(), from.begin(), from.end());
                         }
                         const ResidualStream residual = model_.embed(ids);
                         ActivationFile prefix = store_.prefix(Stream::kQuantized, 0, store_.write_access());
                         return record_of({prefix.write(block.first_token, residual.prefix)});
                       },
                       block.rows});
    }
    run_units(step, units);
  }

  void attention(const WalkStep& step) {
    std::vector<Unit> units;
    for (const Block& block : blocks(in_.grain.unit_rows)) {
      units.push_back({unit_name(step.layer, step.name, block.first_row),
                       [this, &step, block] { return attend(step.stream, step.layer, block); }, block.rows});
    }
    run_units(step, units);
  }

  UnitRecord attend(Stream stream, int64_t layer, const Block& block) {
    ResidualStream residual = store_.before_attention(stream, layer, block.first_token, block.tokens);
    // Every row starts from nothing, and no state outlives the layer that uses it.
    std::vector<SequenceState> states(static_cast<size_t>(block.rows));
    std::vector<SequenceRows> sequences;
    for (int64_t row = 0; row < block.rows; ++row) {
      SequenceState& state = states[static_cast<size_t>(row)];
      state.layers.resize(fresh_.layers.size());
      state.layers[static_cast<size_t>(layer)] = fresh_.layers[static_cast<size_t>(layer)];
      sequences.push_back({&state, row * row_length_, row_length_});
    }
    model_.attention(layer, residual, sequences);
    check_finite(block, residual.prefix, layer, "attention");
    states.clear();
    return in_.config.is_moe(layer) ? enter_experts(stream, layer, block, residual)
                                    : finish_dense(stream, layer, block, residual);
  }

  UnitRecord finish_dense(Stream stream, int64_t layer, const Block& block, ResidualStream& residual) {
    const std::vector<float> h = model_.ffn_input(layer, residual);
    model_.add_ffn(layer, residual, model_.dense_ffn(layer, h, residual.tokens));
    check_finite(block, residual.prefix, layer, "the dense MLP");
    return record_of(
        {store_.prefix(stream, layer + 1, store_.write_access()).write(block.first_token, residual.prefix)});
  }

  UnitRecord enter_experts(Stream stream, int64_t layer, const Block& block, const ResidualStream& residual) {
    const std::vector<float> h = model_.ffn_input(layer, residual);
    check_finite(block, h, layer, "post_attention_layernorm");
    const Routing routing = model_.route(layer, h, residual.tokens);
    const std::vector<float> latent = model_.latent(layer, h, residual.tokens);
    check_finite(block, latent, layer, "routed_expert_down_proj");
    return record_of({store_.attended(stream, layer, store_.write_access()).write(block.first_token, residual.prefix),
                      store_.latent(stream, layer, store_.write_access()).write(block.first_token, latent),
                      store_.write_routing(stream, layer, block.first_token, routing)});
  }

  void solve(const WalkStep& step) {
    const int64_t layer = step.layer;
    const MoeLayer& moe = *find_layer(in_.layers, layer);
    LayerInputs inputs{in_.source.get(), &in_.config, &in_.options, layer, nullptr, nullptr, {}, nullptr};
    const std::vector<Unit> units = expert_units(in_, inputs, moe);
    if (is_done(units)) return;  // perhaps long ago: what they read may be gone
    std::optional<SolveInputs> read;
    try {
      read.emplace(read_solve_inputs(layer));
    } catch (const Error& gone) {
      if (gone.code() == ErrorCode::kNotFound && is_done(units)) return;  // others have just finished the layer
      throw;
    }
    inputs.latent = read->latent.get();
    inputs.original_latent = read->original.get();
    inputs.shared_hessian = read->shared;
    inputs.w2_metric = read->w2_metric ? &*read->w2_metric : nullptr;
    run_experts(in_, step, units);
    note_missing_tokens(layer, units);
  }

  // What the experts of a layer have in common, held while they are solved.
  struct SolveInputs {
    std::unique_ptr<ActivationFile> latent, original;
    std::vector<float> shared;
    std::optional<OutputMetric> w2_metric;
  };

  SolveInputs read_solve_inputs(int64_t layer) const {
    const auto open = [&](Stream stream) {
      return std::unique_ptr<ActivationFile>(new ActivationFile(store_.latent(stream, layer, RowAccess::kRead)));
    };
    SolveInputs inputs;
    inputs.latent = open(Stream::kQuantized);
    if (has_original_stream(in_.options))
      inputs.original = open(layer > split_ ? Stream::kOriginal : Stream::kQuantized);
    if (in_.options.recipe != QuantizeRecipe::kTrefoil) return inputs;
    inputs.shared.resize(static_cast<size_t>(inputs.latent->width() * inputs.latent->width()));
    store_.shared_hessian(layer, RowAccess::kRead).read(0, std::as_writable_bytes(std::span(inputs.shared)));
    if (in_.options.tuning.output_metric)
      inputs.w2_metric = w2_output_metric(CheckpointWeights(in_.source), in_.config, layer);
    return inputs;
  }

  bool is_done(const std::vector<Unit>& units) const {
    return std::all_of(units.begin(), units.end(), [&](const Unit& unit) { return in_.ledger.is_done(unit.name); });
  }

  Unit shared_hessian_unit(const WalkStep& step) {
    return {unit_name(step.layer, step.name, 0), [this, layer = step.layer] {
              const std::vector<float> shared = shared_hessian_of(
                  store_.latent(Stream::kQuantized, layer, RowAccess::kRead), in_.experts_at_once, in_.pool);
              return record_of(
                  {store_.shared_hessian(layer, store_.write_access()).write(0, std::as_bytes(std::span(shared)))});
            }};
  }

  void pass(const WalkStep& step) {
    std::vector<ExpertLinears> staged;
    if (step.pass.quantized_experts) staged = in_.shards.experts(*find_layer(in_.layers, step.layer));
    std::vector<Unit> units;
    for (const Block& block : blocks(in_.grain.pass_rows)) {
      units.push_back({unit_name(step.layer, step.name, block.first_row),
                       [this, &step, &staged, block] { return pass_block(step, staged, block); }, block.rows});
    }
    run_units(step, units);
  }

  UnitRecord pass_block(const WalkStep& step, const std::vector<ExpertLinears>& staged, const Block& block) {
    const int64_t width = in_.config.routed_expert_hidden_size, layer = step.layer;
    const ExpertPass& what = step.pass;
    std::vector<float> sum;
    {
      std::vector<float> latent(static_cast<size_t>(block.tokens * width));
      store_.latent(step.stream, layer, RowAccess::kRead).read(block.first_token, latent);
      const Routing routing = store_.read_routing(step.stream, layer, block.first_token, block.tokens);
      sum = what.quantized_experts ? model_.expert_sum(layer, latent, routing, staged)
                                   : model_.expert_sum(layer, latent, routing);
    }
    std::vector<WrittenRange> written;
    if (what.keeps_effect) {
      const std::vector<double> norm = effect_norms(sum, width, in_.config.rms_norm_eps);
      written.push_back(
          store_.effect(layer, store_.write_access()).write(block.first_token, std::as_bytes(std::span(norm))));
    }
    if (what.finishes_to) {
      for (int64_t row = 0; row < block.rows; row += in_.grain.unit_rows) {
        const int64_t rows = std::min(in_.grain.unit_rows, block.rows - row);
        const Block part{block.first_row + row, rows, block.first_token + row * row_length_, rows * row_length_};
        const auto part_sum = std::span<const float>(sum).subspan(static_cast<size_t>(row * row_length_ * width),
                                                                  static_cast<size_t>(part.tokens * width));
        written.push_back(finish_moe(step, part, part_sum));
      }
    }
    return record_of(std::move(written));
  }

  WrittenRange finish_moe(const WalkStep& step, const Block& block, std::span<const float> sum) {
    const int64_t layer = step.layer;
    ResidualStream residual = store_.after_attention(step.stream, layer, block.first_token, block.tokens);
    const std::vector<float> h = model_.ffn_input(layer, residual);
    model_.add_ffn(layer, residual, model_.moe_finish(layer, h, sum, block.tokens));
    check_finite(block, residual.prefix, layer, "the experts");
    return store_.prefix(*step.pass.finishes_to, layer + 1, store_.write_access())
        .write(block.first_token, residual.prefix);
  }

  static UnitRecord record_of(std::vector<WrittenRange> ranges) {
    UnitRecord record;
    record.ranges = std::move(ranges);
    return record;
  }

  void check_finite(const Block& block, std::span<const float> values, int64_t layer, std::string_view step) const {
    const auto bad = std::find_if_not(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
    if (bad == values.end()) return;
    const int64_t token = (bad - values.begin()) / (static_cast<int64_t>(values.size()) / block.tokens);
    fail(ErrorCode::kCorrupt,
         "layer {}: an activation after {} is {} (calibration row {}, token {}); is the source sound?", layer, step,
         *bad, block.first_row + token / row_length_, token % row_length_);
  }

  void note_missing_tokens(int64_t layer, const std::vector<Unit>& units) {
    if (in_.options.place.rank != 0) return;
    int64_t experts = 0, missing = 0;
    for (const Unit& unit : units) {
      const std::optional<UnitRecord> record = in_.ledger.find(unit.name);
      if (!record) continue;
      for (const int64_t tokens : parse_payload(record->payload).tokens_per_expert) {
        ++experts;
        if (tokens == 0) ++missing;
      }
    }
    if (missing > 0)
      in_.progress.note(fmt::format("layer {}: {} of {} experts see no calibration token", layer, missing, experts));
  }

  const WalkInputs& in_;
  const ActivationStore& store_;
  int64_t row_length_, rows_, split_, last_;
  Model model_;
  SequenceState fresh_;  // of a sequence that has seen nothing
};

void walk_weights_only(const WalkInputs& in) {
  for (const WalkStep& step : walk_steps(in.config, in.options, in.layers)) {
    const MoeLayer& moe = *find_layer(in.layers, step.layer);
    const LayerInputs inputs{in.source.get(), &in.config, &in.options, moe.layer, nullptr, nullptr, {}, nullptr};
    run_experts(in, step, expert_units(in, inputs, moe));
  }
}

}  // namespace

uint64_t walk(const WalkInputs& inputs) {
  if (inputs.options.recipe != QuantizeRecipe::kRtn) return CalibratedWalk(inputs).run();
  walk_weights_only(inputs);
  return 0;
}

}  // namespace trefoil
