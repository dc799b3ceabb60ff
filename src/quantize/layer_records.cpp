#include "quantize/layer_records.h"

#include <iterator>
#include <optional>

#include "base/error.h"
#include "quantize/unit_names.h"
#include "quantize/unit_payload.h"

namespace trefoil {

std::vector<LayerRecord> collect_layer_records(const Ledger& ledger, const std::vector<MoeLayer>& layers,
                                               const WorkGrain& grain, int64_t calibration_tokens) {
  std::vector<LayerRecord> records;
  for (const MoeLayer& moe : layers) {
    LayerRecord layer;
    layer.layer = moe.layer;
    layer.tokens = calibration_tokens;
    const auto experts = static_cast<int64_t>(moe.experts.size());
    for (int64_t begin = 0; begin < experts; begin += grain.experts_per_unit) {
      const std::string unit = unit_name(moe.layer, kExpertStep, begin);
      const std::optional<UnitRecord> record = ledger.find(unit);
      if (!record) fail(ErrorCode::kCorrupt, "{}: there is no record of {}", ledger.folder().string(), unit);
      SolvedExperts solved = parse_payload(record->payload);
      layer.times += solved.times;
      layer.tokens_per_expert.insert(layer.tokens_per_expert.end(), solved.tokens_per_expert.begin(),
                                     solved.tokens_per_expert.end());
      std::move(solved.matrices.begin(), solved.matrices.end(), std::back_inserter(layer.matrices));
    }
    records.push_back(std::move(layer));
  }
  return records;
}

}  // namespace trefoil
