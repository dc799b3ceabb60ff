#include "quantize/expert_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "quantize/hessian.h"
#include "quantize/stop.h"
#include "quantize/unit_names.h"
#include "quantize/unit_payload.h"

namespace trefoil {
namespace {

constexpr int64_t kReadTokens = 4096;  // routing and latents are read in pieces of so many tokens

class ExpertUnit {
 public:
  ExpertUnit(const WalkInputs& walk, const LayerInputs& inputs, const MoeLayer& layer, int64_t begin, int64_t end)
      : walk_(walk), inputs_(inputs), layer_(layer), begin_(begin), end_(end) {}

  UnitRecord run() {
    const std::vector<ExpertTokens> tokens = collect_tokens();
    SolvedExperts solved;
    UnitRecord record;
    for (int64_t expert = begin_; expert < end_; ++expert) {
      stop_if_asked(inputs_.options->stop);
      if (expert + 1 < end_) read_ahead(expert + 1);
      solve(expert, tokens[static_cast<size_t>(expert - begin_)], solved, record);
    }
    walk_.shards.sync(record.ranges);
    record.payload = to_payload(solved);
    return record;
  }

 private:
  std::vector<ExpertTokens> collect_tokens() const {
    std::vector<ExpertTokens> experts(static_cast<size_t>(end_ - begin_));
    if (walk_.activations == nullptr) return experts;
    const ActivationStore& store = *walk_.activations;
    const QuantizeOptions& options = *inputs_.options;
    std::optional<RowFile> effects;
    if (options.recipe == QuantizeRecipe::kTrefoil && options.tuning.gate_weighting)
      effects.emplace(store.effect(inputs_.layer, RowAccess::kRead));
    std::vector<std::vector<double>> norms(experts.size());  // effects of each expert's tokens
    for (int64_t first = 0; first < store.tokens(); first += kReadTokens) {
      const int64_t count = std::min(kReadTokens, store.tokens() - first);
      append_tokens(experts, begin_, store.read_routing(Stream::kQuantized, inputs_.layer, first, count), first);
      if (!effects) continue;
      std::vector<double> block(static_cast<size_t>(count));
      effects->read(first, std::as_writable_bytes(std::span(block)));
      for (size_t e = 0; e < experts.size(); ++e) {
        for (size_t i = norms[e].size(); i < experts[e].token.size(); ++i)
          norms[e].push_back(block[static_cast<size_t>(experts[e].token[i] - first)]);
      }
    }
    for (size_t e = 0; effects && e < experts.size(); ++e) weigh_by_effect(experts[e], norms[e]);
    return experts;
  }

  // The weights of an expert come from the disk while the one before it is solved.
  void read_ahead(int64_t expert) const {
    for (const ExpertPart part : kExpertParts) read_linear_ahead(*inputs_.source, stored(expert).part(part));
  }

  // Nothing of an expert is left but its record and the bytes in its shard.
  void solve(int64_t expert, const ExpertTokens& tokens, SolvedExperts& solved, UnitRecord& record) const {
    ExpertResult result = quantize_expert(inputs_, expert, stored(expert), tokens);
    for (const ExpertPart part : kExpertParts) {
      const auto at = static_cast<size_t>(part);
      const auto ranges = walk_.shards.write(stored(expert).part(part).module, result.encoded[at]);
      record.ranges.insert(record.ranges.end(), ranges.begin(), ranges.end());
      solved.matrices.push_back(std::move(result.record[at]));
    }
    solved.tokens_per_expert.push_back(tokens.count());
    solved.times += result.times;
  }

  const RoutedExpert& stored(int64_t expert) const { return layer_.experts[static_cast<size_t>(expert)]; }

  const WalkInputs& walk_;
  const LayerInputs& inputs_;
  const MoeLayer& layer_;
  int64_t begin_, end_;
};

}  // namespace

std::vector<Unit> expert_units(const WalkInputs& walk, const LayerInputs& inputs, const MoeLayer& layer) {
  std::vector<Unit> units;
  const auto experts = static_cast<int64_t>(layer.experts.size());
  for (int64_t begin = 0; begin < experts; begin += walk.grain.experts_per_unit) {
    const int64_t end = std::min(experts, begin + walk.grain.experts_per_unit);
    units.push_back({unit_name(layer.layer, kExpertStep, begin),
                     [&walk, &inputs, &layer, begin, end] { return ExpertUnit(walk, inputs, layer, begin, end).run(); },
                     end - begin});
  }
  return units;
}

std::vector<float> shared_hessian_of(const ActivationFile& latent, int64_t parts_at_once, ThreadPool& pool) {
  // A fixed number of parts, whatever the number of threads, so that the sum is always taken in the same order.
  constexpr int64_t kParts = 8;
  const int64_t tokens = latent.rows(), width = latent.width();
  const auto part_mean = [&](int64_t part) {
    const int64_t begin = tokens * part / kParts, end = tokens * (part + 1) / kParts;
    HessianAccumulator hessian(width);
    std::vector<float> rows;
    for (int64_t first = begin; first < end; first += kReadTokens) {
      rows.resize(static_cast<size_t>(std::min(kReadTokens, end - first) * width));
      latent.read(first, rows);
      hessian.add(rows, {});
    }
    std::vector<float> mean = hessian.mean();
    const auto share = static_cast<float>(static_cast<double>(end - begin) / static_cast<double>(tokens));
    for (float& value : mean) value *= share;
    return mean;
  };
  std::vector<float> sum(static_cast<size_t>(width * width), 0.0f);
  for (int64_t first = 0; first < kParts; first += parts_at_once) {
    std::vector<std::vector<float>> parts(static_cast<size_t>(std::min(kParts - first, parts_at_once)));
    pool.parallel_for(static_cast<int64_t>(parts.size()),
                      [&](int64_t i) { parts[static_cast<size_t>(i)] = part_mean(first + i); });
    for (const std::vector<float>& part : parts) {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
  }
  return sum;
}

}  // namespace trefoil
