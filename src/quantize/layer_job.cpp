#include "quantize/layer_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "base/error.h"
#include "quantize/hessian.h"
#include "tensor/bf16.h"

namespace trefoil {
namespace {

// Results of a block wait in memory until their turn in the sum.
constexpr int64_t kBlockBytes = int64_t{1} << 30;

// Tells the sink about finished experts, from whichever thread, one at a time.
class ExpertProgress {
 public:
  ExpertProgress(ProgressSink& sink, int64_t layer, int64_t total)
      : sink_(sink), stage_(fmt::format("layer {}: experts", layer)), total_(total) {
    sink_.update(stage_, 0, total_);
  }
  void one_done() {
    const std::lock_guard lock(mutex_);
    sink_.update(stage_, ++done_, total_);
  }

 private:
  ProgressSink& sink_;
  std::string stage_;
  int64_t total_;
  int64_t done_ = 0;
  std::mutex mutex_;
};

// The end of the block that starts at `begin`: at least one expert a thread, more while their results fit.
int64_t block_end(int64_t begin, const std::vector<ExpertTokens>& tokens, int64_t bytes_per_token,
                  int64_t bytes_per_expert, int num_threads) {
  const auto experts = static_cast<int64_t>(tokens.size());
  int64_t end = begin, bytes = 0;
  while (end < experts) {
    bytes += tokens[static_cast<size_t>(end)].count() * bytes_per_token + bytes_per_expert;
    if (bytes > kBlockBytes && end - begin >= num_threads) break;
    ++end;
  }
  return end;
}

}  // namespace

void stop_if_asked(const QuantizeOptions& options) {
  if (options.stop != nullptr && options.stop->load())
    fail(ErrorCode::kCancelled, "stopped as asked; the output folder is as it was");
}

LayerResult quantize_layer(const LayerInputs& inputs, const MoeLayer& layer, const std::vector<ExpertTokens>& tokens,
                           ThreadPool& pool, ShardWriter& writer, ProgressSink& progress) {
  const StoredLinear& w1 = layer.experts.front().part(ExpertPart::kW1);
  const int64_t width = w1.in_features;
  const auto experts = static_cast<int64_t>(layer.experts.size());
  LayerResult result;
  result.record.layer = layer.layer;
  result.record.tokens = static_cast<int64_t>(inputs.latent.size()) / width;
  result.expert_sum.assign(inputs.latent.size(), 0.0f);
  ExpertProgress done(progress, layer.layer, experts);

  for (int64_t begin = 0, end = 0; begin < experts; begin = end) {
    end = block_end(begin, tokens, width * int64_t{sizeof(float)}, 3 * w1.in_features * w1.out_features,
                    pool.num_threads());
    std::vector<ExpertResult> block(static_cast<size_t>(end - begin));
    pool.parallel_for(end - begin, [&](int64_t i) {
      stop_if_asked(*inputs.options);
      const auto expert = static_cast<size_t>(begin + i);
      block[static_cast<size_t>(i)] = quantize_expert(inputs, begin + i, layer.experts[expert], tokens[expert]);
      done.one_done();
    });
    for (int64_t expert = begin; expert < end; ++expert) {
      ExpertResult& solved = block[static_cast<size_t>(expert - begin)];
      const ExpertTokens& seen = tokens[static_cast<size_t>(expert)];
      scatter_add(seen, solved.output, width, result.expert_sum);
      result.record.tokens_per_expert.push_back(seen.count());
      for (ExpertPart part : kExpertParts) {
        const auto at = static_cast<size_t>(part);
        writer.add(layer.experts[static_cast<size_t>(expert)].part(part).module, std::move(solved.encoded[at]));
        result.record.matrices.push_back(std::move(solved.record[at]));
      }
    }
  }
  round_expert_sum(result.expert_sum, inputs.options->numerics);
  return result;
}

void round_expert_sum(std::span<float> expert_sum, Numerics numerics) {
  if (numerics != Numerics::kBf16) return;
  for (float& value : expert_sum) value = round_to_bf16(value);
}

std::vector<float> shared_hessian(std::span<const float> latent, int64_t width, ThreadPool& pool) {
  // A fixed number of parts, whatever the number of threads, so that the sum is always taken in the same order.
  constexpr int64_t kParts = 8;
  const int64_t tokens = static_cast<int64_t>(latent.size()) / width;
  std::vector<std::vector<float>> parts(kParts);
  pool.parallel_for(kParts, [&](int64_t part) {
    const int64_t begin = tokens * part / kParts, end = tokens * (part + 1) / kParts;
    HessianAccumulator hessian(width);
    hessian.add(latent.subspan(static_cast<size_t>(begin * width), static_cast<size_t>((end - begin) * width)), {});
    parts[static_cast<size_t>(part)] = hessian.mean();
    const auto share = static_cast<float>(static_cast<double>(end - begin) / static_cast<double>(tokens));
    for (float& value : parts[static_cast<size_t>(part)]) value *= share;
  });
  std::vector<float> sum(static_cast<size_t>(width * width), 0.0f);
  for (const std::vector<float>& part : parts) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  return sum;
}

}  // namespace trefoil
