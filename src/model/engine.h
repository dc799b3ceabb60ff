// A model made ready to run within a memory budget: the plan, the weights where the plan puts them, the expert store.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/parallel.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/model_config.h"
#include "model/model.h"
#include "model/resident_weights.h"
#include "stream/expert_store.h"
#include "trefoil/engine.h"

namespace trefoil {

// Whether every weight is decoded from the mapped checkpoint as it is used, so that none is held in a running form.
inline bool decodes_weights(const EngineOptions& options) {
  return options.kernels == KernelMode::kReference || options.numerics == Numerics::kF32;
}

// The memory that weights in their running form, states and scratch take, from headers alone. `limit_bytes` is what the
// machine leaves when the options give no budget. Error(kOverBudget) names the parts when they do not fit, or when
// kMemory was asked for and does not.
MemoryPlan plan_memory(const ModelConfig& config, const Checkpoint& checkpoint, const EngineOptions& options,
                       uint64_t limit_bytes);

class Engine {
 public:
  // Errors as load_model_config, Checkpoint::open, plan_memory, ExpertStore and Model.
  Engine(const std::filesystem::path& folder, const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ModelConfig& config() const { return config_; }
  const Checkpoint& checkpoint() const { return *checkpoint_; }
  const Model& model() const { return *model_; }
  Model& model() { return *model_; }
  ThreadPool& pool() { return pool_; }
  const EngineOptions& options() const { return options_; }
  const MemoryPlan& plan() const { return plan_; }
  const ResidentReport& resident() const { return resident_; }
  ExpertStore* experts() const { return store_.get(); }  // null when all are in memory
  std::optional<StreamReport> stream_report() const;

 private:
  EngineOptions options_;
  ModelConfig config_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  ThreadPool pool_;
  MemoryPlan plan_;
  std::shared_ptr<ExpertStore> store_;
  std::unique_ptr<Model> model_;
  ResidentReport resident_;
};

}  // namespace trefoil
