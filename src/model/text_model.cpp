#include "model/text_model.h"

#include <algorithm>

#include "base/error.h"
#include "model/model_fingerprint.h"

namespace trefoil {

TextModel::TextModel(const std::filesystem::path& folder, const EngineOptions& options)
    : tokenizer_(Tokenizer::load(folder)) {
  // A tokenizer that names ids the model has not, or fewer, belongs to another model.
  const int64_t vocab_size = load_model_config(folder).vocab_size;
  if (tokenizer_.vocab_size() != vocab_size) {
    fail(ErrorCode::kCorrupt, "the tokenizer has {} ids, the config's vocab_size is {}", tokenizer_.vocab_size(),
         vocab_size);
  }
  engine_ = std::make_unique<Engine>(folder, options);
}

const SnapshotShape& TextModel::snapshot_shape() {
  if (shape_.fingerprint.empty())
    shape_ = trefoil::snapshot_shape(model(), model_fingerprint(engine_->config(), engine_->checkpoint(),
                                                                model().options(), engine_->options().trunk));
  return shape_;
}

bool TextModel::is_end(int32_t id) const {
  const std::vector<int64_t>& ends = engine_->config().eos_token_ids;
  return std::find(ends.begin(), ends.end(), id) != ends.end();
}

}  // namespace trefoil
