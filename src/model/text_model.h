// A checkpoint folder opened to write text with: config, tokenizer, weights, forward pass, threads.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/parallel.h"
#include "checkpoint/checkpoint.h"
#include "model/model.h"
#include "model/sequence_snapshot.h"
#include "trefoil/tokenizer.h"

namespace trefoil {

class TextModel {
 public:
  // `threads` 0: as many as this process may use. Errors as load_model_config, Tokenizer::load, Checkpoint::open and
  // Model; kCorrupt when the tokenizer has more or fewer ids than the model.
  TextModel(const std::filesystem::path& folder, Numerics numerics, int threads);
  TextModel(const TextModel&) = delete;
  TextModel& operator=(const TextModel&) = delete;

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const Model& model() const { return *model_; }
  const SnapshotShape& snapshot_shape();  // its fingerprint is worked out when it is first asked for
  bool is_end(int32_t id) const;          // one of the config's end tokens

 private:
  ModelConfig config_;
  Tokenizer tokenizer_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  ThreadPool pool_;
  std::unique_ptr<const Model> model_;
  SnapshotShape shape_;
};

}  // namespace trefoil
