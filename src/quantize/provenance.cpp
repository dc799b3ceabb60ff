#include "quantize/provenance.h"

#include "base/cpu.h"
#include "base/sha256.h"
#include "checkpoint/folder_files.h"
#include "quantize/linalg.h"

namespace trefoil {
namespace {

ShardRecord describe_shard(const Checkpoint& source, uint32_t shard) {
  const InputFile file(source.folder() / source.shards()[shard]);
  std::vector<std::byte> header(source.header(shard).data_start);
  file.read_at(0, header);
  std::error_code ignored;
  const auto modified = fs::last_write_time(file.path(), ignored).time_since_epoch().count();
  return {source.shards()[shard], file.size(), sha256_hex(header), static_cast<int64_t>(modified)};
}

std::string last_name(const fs::path& folder) {
  const fs::path clean = fs::absolute(folder).lexically_normal();
  return (clean.has_filename() ? clean : clean.parent_path()).filename().string();
}

}  // namespace

SourceRecord describe_source(const Checkpoint& source) {
  SourceRecord record;
  record.folder = last_name(source.folder());
  record.config_sha256 = sha256_of_file(source.folder() / kConfigFile);
  const fs::path index = source.folder() / kIndexFile;
  if (fs::exists(index)) record.index_sha256 = sha256_of_file(index);
  for (uint32_t shard = 0; shard < source.shards().size(); ++shard)
    record.shards.push_back(describe_shard(source, shard));
  record.tensor_bytes = source.total_tensor_bytes();
  return record;
}

EnvironmentRecord describe_environment(int threads) {
  return {TREFOIL_VERSION, __VERSION__, linalg_description(), to_string(active_isa()), threads};
}

}  // namespace trefoil
