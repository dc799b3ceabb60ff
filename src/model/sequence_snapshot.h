// One sequence at one position, whole: what a model carries from token to token, the ids it has seen, and the logits of
// the last one. In memory, and as a file (docs/formats.md, "Sequence state").
//
// A snapshot is used as a whole or not at all: a KDA layer cannot go back, so there is no way here to shorten one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/file.h"
#include "model/model.h"

namespace trefoil {

uint64_t state_bytes(const SequenceState& state);  // of memory

struct SequenceSnapshot {
  std::vector<int32_t> ids;
  SequenceState state;        // state.position == ids.size()
  std::vector<float> logits;  // [vocab_size], of the last id; empty when there are no ids

  uint64_t bytes() const;  // of memory
};

// What the snapshots of one model look like.
struct SnapshotShape {
  struct Layer {
    uint64_t conv = 0;       // floats in each of conv_q, conv_k, conv_v
    uint64_t recurrent = 0;  // floats
    uint64_t kv_row = 0;     // floats per token
  };
  std::string fingerprint;  // of the model, 64 hex digits (model/model_fingerprint.h)
  int64_t vocab_size = 0;
  int64_t max_tokens = 0;
  std::vector<Layer> layers;
};
SnapshotShape snapshot_shape(const Model& model, std::string fingerprint);

// Writes the file whole or not at all. The same snapshot gives the same bytes. A file that is there is replaced if it is
// a sequence's state too: Error(kInvalidArgument) otherwise.
void save_snapshot(const SequenceSnapshot& snapshot, const SnapshotShape& shape, const fs::path& path);

// What save_snapshot() will refuse, before there is work to lose: that, and a folder that is not there.
void check_snapshot_place(const fs::path& path);

// Gives back every bit. Error naming the file, what was expected and what was found: kCorrupt for bytes that are no
// such file, are cut off or changed; kUnsupported for another version; kInvalidArgument for the state of another model
// or other numerics; kIo when reading fails. Allocates nothing that the file's own size does not bear out.
SequenceSnapshot load_snapshot(const SnapshotShape& shape, const fs::path& path);

// The same from bytes that `read` gives: offset within [0, size), exact or an Error. `name` is for messages.
struct SnapshotSource {
  std::string name;
  uint64_t size = 0;
  std::function<void(uint64_t offset, MutableBytes out)> read;
};
SequenceSnapshot read_snapshot(const SnapshotShape& shape, const SnapshotSource& source);

}  // namespace trefoil
