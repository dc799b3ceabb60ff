#include "eval/verify_container.h"

#include <fmt/format.h>

#include "base/error.h"
#include "checkpoint/folder_files.h"
#include "eval/verify_check.h"

namespace trefoil {
namespace {

// Tensors of one name in two shards: loaders disagree on which one counts.
void check_duplicates(const FolderScan& scan, CheckRecorder& check) {
  const auto& tensors = scan.tensors();
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].info->name != tensors[i - 1].info->name) continue;
    check.fail(tensors[i].info->name, scan.shard_name(tensors[i]), "one tensor of this name",
               fmt::format("also in {}", scan.shard_name(tensors[i - 1])));
  }
}

void check_index_entry(const FolderScan& scan, const CheckpointIndex& index, const CheckpointIndex::Entry& entry,
                       CheckRecorder& check) {
  const std::string& shard = index.shards[entry.shard];
  const ScannedTensor* tensor = scan.find(entry.name);
  if (tensor == nullptr) {
    check.fail(entry.name, shard, "in this shard, as the index says", "in no readable shard");
  } else if (scan.shard_name(*tensor) != shard) {
    check.fail(entry.name, shard, "in this shard, as the index says", "in " + scan.shard_name(*tensor));
  }
}

void check_total_size(const FolderScan& scan, const CheckpointIndex& index, CheckRecorder& check) {
  for (const ScannedShard& shard : scan.shards()) {
    if (!shard.in_folder || !shard.error.empty()) return;  // the sum would be wrong for a reason already reported
  }
  uint64_t bytes = 0;
  for (const ScannedTensor& tensor : scan.tensors()) bytes += tensor.info->size();
  check.figure("tensor_bytes", static_cast<double>(bytes));
  if (index.total_size == 0) {
    check.warn("", kIndexFile, fmt::format("metadata.total_size {}", bytes), "none");
  } else if (index.total_size != bytes) {
    check.fail("", kIndexFile, fmt::format("metadata.total_size {}", bytes), fmt::format("{}", index.total_size));
  }
}

}  // namespace

VerifyCheck check_container(const FolderScan& scan, const VerifyOptions& options) {
  CheckRecorder check("container", "every shard is there, whole, and tiled by its tensors", "shards",
                      options.max_findings);
  for (const ScannedShard& shard : scan.shards()) {
    check.count();
    if (!shard.in_folder) {
      check.fail("", shard.name, "the shard the index names", "no such file");
    } else if (!shard.error.empty()) {
      check.fail("", shard.name, "a safetensors file", shard.error);
    } else if (!shard.header.metadata.contains("format")) {
      check.warn("", shard.name, "__metadata__ with \"format\": \"pt\" (loaders ask for it)", "none");
    }
  }
  if (scan.shards().empty()) check.fail("", "", "at least one shard", "none");
  return std::move(check).finish();
}

VerifyCheck check_index(const FolderScan& scan, const VerifyOptions& options) {
  CheckRecorder check("index", "index and shards name the same tensors in the same places", "tensors",
                      options.max_findings);
  check_duplicates(scan, check);
  check.count(scan.tensors().size());
  if (!scan.has_index()) {
    const bool single = scan.shards().size() == 1 && scan.shards()[0].name == "model.safetensors";
    if (single && check.failures() == 0) return std::move(check).skip("one model.safetensors needs no index");
    if (!single) check.fail("", kIndexFile, "an index of the shards", "no such file");
    return std::move(check).finish();
  }
  if (!scan.index()) {
    check.fail("", kIndexFile, "an index", scan.index_error());
    return std::move(check).finish();
  }
  const CheckpointIndex& index = *scan.index();
  for (const CheckpointIndex::Entry& entry : index.entries) check_index_entry(scan, index, entry, check);
  for (const ScannedTensor& tensor : scan.tensors()) {
    if (index.find(tensor.info->name) == nullptr) {
      check.fail(tensor.info->name, scan.shard_name(tensor), "named in the index", "absent from it");
    }
  }
  for (const ScannedShard& shard : scan.shards()) {
    if (!shard.in_index) check.fail("", shard.name, "named in the index", "absent from it");
  }
  check_total_size(scan, index, check);
  return std::move(check).finish();
}

VerifyCheck check_opens(const FolderScan& scan, const VerifyOptions& options, std::optional<Checkpoint>* checkpoint) {
  CheckRecorder check("opens", "the program's own strict reader accepts the folder", "checkpoints",
                      options.max_findings);
  check.count();
  try {
    *checkpoint = Checkpoint::open(scan.folder(), Checkpoint::Access::kRead);
  } catch (const Error& refused) {
    check.fail("", "", "", refused.what());
  }
  return std::move(check).finish();
}

}  // namespace trefoil
