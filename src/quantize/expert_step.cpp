#include "quantize/expert_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>

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
    std::vector<Solved> results(tokens.size());
    solve(tokens, results);
    SolvedExperts solved;
    UnitRecord record;
    for (size_t i = 0; i < results.size(); ++i) {
      solved.times += results[i].times;
      solved.tokens_per_expert.push_back(tokens[i].count());
      for (MatrixRecord& matrix : results[i].record) solved.matrices.push_back(std::move(matrix));
      record.ranges.insert(record.ranges.end(), results[i].written.begin(), results[i].written.end());
    }
    walk_.shards.sync(record.ranges);
    record.payload = to_payload(solved);
    return record;
  }

 private:
  // What is left of an expert once its codes are in the shard.
  struct Solved {
    std::array<MatrixRecord, 3> record;
    ExpertTimes times;
    std::vector<WrittenRange> written;
  };

  std::vector<ExpertTokens> collect_tokens() const {
    std::vector<ExpertTokens> experts(static_cast<size_t>(end_ - begin_));
    if (walk_.activations == nullptr) return experts;
    const ActivationStore& store = *walk_.activations;
    for (int64_t first = 0; first < store.tokens(); first += kReadTokens) {
      const int64_t count = std::min(kReadTokens, store.tokens() - first);
      append_tokens(experts, begin_, store.read_routing(Stream::kQuantized, inputs_.layer, first, count), first);
    }
    const QuantizeOptions& options = *inputs_.options;
    if (options.recipe != QuantizeRecipe::kTrefoil || !options.tuning.gate_weighting) return experts;
    std::vector<double> norm(static_cast<size_t>(store.tokens()));
    store.effect(inputs_.layer, RowAccess::kRead).read(0, std::as_writable_bytes(std::span(norm)));
    for (ExpertTokens& expert : experts) weigh_by_effect(expert, norm);
    return experts;
  }

  // At most experts_at_once side by side: each holds matrices of its own.
  void solve(const std::vector<ExpertTokens>& tokens, std::vector<Solved>& results) const {
    std::atomic<size_t> next{0};
    walk_.pool.parallel_for(std::min<int64_t>(walk_.experts_at_once, walk_.pool.num_threads()), [&](int64_t) {
      for (size_t i = next++; i < tokens.size(); i = next++) {
        stop_if_asked(inputs_.options->stop);
        results[i] = solve_one(begin_ + static_cast<int64_t>(i), tokens[i]);
      }
    });
  }

  Solved solve_one(int64_t expert, const ExpertTokens& tokens) const {
    const RoutedExpert& stored = layer_.experts[static_cast<size_t>(expert)];
    ExpertResult result = quantize_expert(inputs_, expert, stored, tokens);
    Solved solved;
    for (const ExpertPart part : kExpertParts) {
      const auto at = static_cast<size_t>(part);
      const auto ranges = walk_.shards.write(stored.part(part).module, result.encoded[at]);
      solved.written.insert(solved.written.end(), ranges.begin(), ranges.end());
    }
    solved.record = std::move(result.record);
    solved.times = result.times;
    return solved;
  }

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
