// What a recode writes, known before any data is read.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/linear_storage.h"
#include "checkpoint/quantization_config.h"
#include "quantize/recode_origin.h"
#include "trefoil/recode.h"

namespace trefoil {

int num_bits_of(PackedForm form);
PackedLayout layout_of(PackedForm form);

struct RecodeShard {
  std::string file;
  std::vector<TensorPlan> tensors;  // in file order
  std::map<std::string, std::string> metadata;
};

struct RecodePlan {
  PackedForm from = PackedForm::kW3Dense;
  PackedForm to = PackedForm::kW3Dense;
  RecodeOrigin origin;
  PackQuantizedSpec spec;                                       // what the output's config says
  std::vector<std::unique_ptr<StoredLinear>> linears;           // every packed Linear of the input
  std::unordered_map<std::string, const StoredLinear*> packed;  // by the name of weight_packed
  std::vector<RecodeShard> shards;                              // the input's, in its order
  CheckpointIndex index;
  uint64_t data_alignment = 4096;

  // The output is what the input's recode.json describes: nothing is left to remember.
  bool restores_origin() const { return to == origin.form; }
};

// Errors as recode() says. `input` must outlive the plan.
RecodePlan plan_recode(const Checkpoint& input, PackedForm to);

}  // namespace trefoil
