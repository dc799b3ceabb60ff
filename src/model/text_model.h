// A checkpoint folder opened to write text with: config, tokenizer, weights, forward pass, threads.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "model/engine.h"
#include "model/sequence_snapshot.h"
#include "trefoil/tokenizer.h"

namespace trefoil {

class TextModel {
 public:
  // Errors as Tokenizer::load and Engine; kCorrupt when the tokenizer has more or fewer ids than the model.
  TextModel(const std::filesystem::path& folder, const EngineOptions& options);
  TextModel(const TextModel&) = delete;
  TextModel& operator=(const TextModel&) = delete;

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const Model& model() const { return engine_->model(); }
  const Engine& engine() const { return *engine_; }
  const SnapshotShape& snapshot_shape();  // its fingerprint is worked out when it is first asked for
  bool is_end(int32_t id) const;          // one of the config's end tokens

 private:
  Tokenizer tokenizer_;
  std::unique_ptr<Engine> engine_;
  SnapshotShape shape_;
};

}  // namespace trefoil
