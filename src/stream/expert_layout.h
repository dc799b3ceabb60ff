// Where the routed experts of a checkpoint lie in its files, and what must be read for one of them.
//
// The six tensors of an expert that lie one behind the other are one read: design D1's dense layout gives one aligned
// read of 13,418,496 bytes at Kimi-K3's widths. Other layouts work too, with more reads or with some bytes read in
// vain; summary() says so. The same checkpoint may lie in several folders, one on each drive: experts are dealt out to
// them in turn. Immutable; safe to use from several threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/linear_storage.h"
#include "checkpoint/model_config.h"

namespace trefoil {

enum class ExpertMatrix { kW1, kW2, kW3 };  // gate, down, up

// Consecutive bytes of a file that one read brings, and where in the expert's slot the aligned range around them goes.
struct FileExtent {
  uint32_t shard = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
  uint64_t slot_offset = 0;  // a multiple of 4096; byte `offset` is at slot_offset + offset % 4096
};

struct ExpertPlace {
  StoredLinear linear[3];           // by ExpertMatrix
  std::vector<FileExtent> extents;  // by shard and offset
  uint64_t tensor_bytes = 0;        // of its tensors
  uint64_t slot_bytes = 0;          // that its slot must have, a multiple of 4096
};

struct ExpertLayoutSummary {
  int64_t num_experts = 0;        // of all layers
  uint64_t tensor_bytes = 0;      // of the largest expert
  uint64_t slot_bytes = 0;        // of the largest expert
  uint64_t all_tensor_bytes = 0;  // of all experts
  int64_t most_reads = 0;         // for one expert
  bool is_aligned = true;         // every read begins and ends at a multiple of 4096: nothing is read in vain
  std::string text;               // "one aligned read of 13,418,496 bytes an expert"
};

class ExpertLayout {
 public:
  // Every expert of every MoE layer, through resolve_linear(). Further copies must have the same shards with the same
  // headers, or Error(kCorrupt) says where they differ; that their bytes are the same is not looked at.
  ExpertLayout(std::vector<std::shared_ptr<const Checkpoint>> copies, const ModelConfig& config);

  int64_t num_experts() const { return num_experts_; }  // in one layer
  int64_t num_keys() const { return static_cast<int64_t>(places_.size()); }
  // (layer, expert) as one number, ascending. Layers are those of the model, counted from 0; TREFOIL_CHECK that it is
  // an MoE layer.
  int64_t key(int64_t layer, int64_t expert) const;
  int64_t layer_of(int64_t key) const { return first_layer_ + key / num_experts_; }
  int64_t expert_of(int64_t key) const { return key % num_experts_; }
  std::string name(int64_t key) const;  // "layer 37 expert 412"

  const ExpertPlace& place(int64_t key) const { return places_[static_cast<size_t>(key)]; }
  // The paths of all shards of all copies, for DriveReader::open.
  std::vector<std::filesystem::path> files() const;
  // Into files(): the shard in the copy that serves this expert.
  uint32_t file(int64_t key, const FileExtent& extent) const;

  // The matrix in a slot that holds all extents of the place.
  StoredMatrix matrix(int64_t key, ExpertMatrix which, Bytes slot) const;

  const ExpertLayoutSummary& summary() const { return summary_; }

 private:
  ExpertPlace locate(const std::string& module) const;
  Bytes find(const ExpertPlace& place, const TensorRef* tensor, Bytes slot) const;
  void summarize();

  std::vector<std::shared_ptr<const Checkpoint>> copies_;
  int64_t first_layer_ = 0;
  int64_t num_experts_ = 0;
  std::vector<ExpertPlace> places_;
  ExpertLayoutSummary summary_;
};

}  // namespace trefoil
