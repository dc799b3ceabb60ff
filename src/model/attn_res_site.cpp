#include "model/attn_res_site.h"

#include "kernels/attn_res.h"

namespace trefoil {

AttnResSite::AttnResSite(const ModelConfig& config, const WeightLoader& weights, const std::string& name)
    : eps_(static_cast<float>(config.rms_norm_eps)) {
  const Dim hidden{config.hidden_size, "hidden_size"};
  weight_ = weights.weight_vector(name + "_norm", hidden);
  const std::vector<float> proj = weights.tensor(name + "_proj.weight", {{1, "one score"}, hidden});
  for (size_t d = 0; d < weight_.size(); ++d) weight_[d] *= proj[d];
}

std::vector<float> AttnResSite::mix(const Runtime& runtime, const ResidualStream& stream, int64_t begin,
                                    int64_t count) const {
  std::vector<float> out(block_size(count, stream.hidden));
  runtime.pool->parallel_for(count, [&](int64_t i) {
    const int64_t offset = (begin + i) * stream.hidden;
    std::vector<const float*> candidates;
    for (const std::vector<float>& block : stream.stack) candidates.push_back(block.data() + offset);
    candidates.push_back(stream.prefix.data() + offset);
    std::vector<float> scores(candidates.size());
    attn_res_mix(candidates, weight_, eps_, runtime.rounding, scores, row_of(std::span(out), i, stream.hidden));
  });
  return out;
}

}  // namespace trefoil
