// The shards of the output while they are made: whole files from the start, filled tensor by tensor, by any process and
// over any number of runs. Which tensors are in them the ledger says.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/model.h"
#include "quantize/encoded_linear.h"
#include "quantize/ledger.h"
#include "quantize/shard_plan.h"

namespace trefoil {

class StagedShards {
 public:
  // Makes what is not there yet in `folder`, which exists. Everything given must outlive this.
  StagedShards(const Checkpoint& source, const std::vector<ShardPlan>& plans, const ExpertEncoding& encoding,
               fs::path folder);

  const fs::path& folder() const { return folder_; }

  // The result for a Linear; `module` as in the source. What was written, for the ledger.
  std::vector<WrittenRange> write(const std::string& module, const EncodedLinear& linear);
  // Copies the tensors of a plan that the job does not make. Error(kCorrupt) naming one that holds an infinity or NaN.
  std::vector<WrittenRange> copy_unchanged(const ShardPlan& plan);
  // Makes what was written into a shard, or into those of these ranges, durable.
  void sync(const std::string& shard_file);
  void sync(const std::vector<WrittenRange>& ranges);

  // The experts of a layer as they were quantized, read from the staged shards as they are used. The Linears stay valid
  // as long as this.
  std::vector<ExpertLinears> experts(const MoeLayer& layer) const;

 private:
  SafetensorsStage& stage_of(const std::string& tensor) const;
  WrittenRange write_range(const std::string& tensor, uint64_t offset, Bytes bytes);

  const Checkpoint& source_;
  const std::vector<ShardPlan>& plans_;
  ExpertEncoding encoding_;
  fs::path folder_;
  std::vector<std::unique_ptr<SafetensorsStage>> stages_;  // by plan
  std::unordered_map<std::string, size_t> shard_of_;       // tensor name -> plan
};

}  // namespace trefoil
