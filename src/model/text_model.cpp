#include "model/text_model.h"

#include <algorithm>

#include "base/error.h"
#include "model/checkpoint_weights.h"
#include "model/model_fingerprint.h"

namespace trefoil {
namespace {

// Absorbed attention for the prompt too: one arithmetic for every token, so that the chunk size cannot matter.
ForwardOptions forward_options(Numerics numerics) {
  return {.numerics = numerics, .kda = KdaForm::kRecurrent, .mla = MlaForm::kAbsorbed};
}

}  // namespace

TextModel::TextModel(const std::filesystem::path& folder, Numerics numerics, int threads)
    : config_(load_model_config(folder)),
      tokenizer_(Tokenizer::load(folder)),
      checkpoint_(std::make_shared<const Checkpoint>(Checkpoint::open(folder))),
      pool_(threads > 0 ? threads : usable_cpus()) {
  // A tokenizer that names ids the model has not, or fewer, belongs to another model.
  if (tokenizer_.vocab_size() != config_.vocab_size) {
    fail(ErrorCode::kCorrupt, "the tokenizer has {} ids, the config's vocab_size is {}", tokenizer_.vocab_size(),
         config_.vocab_size);
  }
  model_ = std::make_unique<const Model>(config_, std::make_shared<CheckpointWeights>(checkpoint_),
                                         forward_options(numerics), pool_);
}

const SnapshotShape& TextModel::snapshot_shape() {
  if (shape_.fingerprint.empty())
    shape_ = trefoil::snapshot_shape(*model_, model_fingerprint(config_, *checkpoint_, model_->options()));
  return shape_;
}

bool TextModel::is_end(int32_t id) const {
  const std::vector<int64_t>& ends = config_.eos_token_ids;
  return std::find(ends.begin(), ends.end(), id) != ends.end();
}

}  // namespace trefoil
