// The index parser. An accepted index is sorted, names plain files, and survives being written and parsed again.
#include <algorithm>
#include <string>

#include "base/check.h"
#include "checkpoint/checkpoint.h"
#include "fuzz.h"

namespace trefoil {
namespace {

bool same(const CheckpointIndex& a, const CheckpointIndex& b) {
  return a.total_size == b.total_size && a.shards == b.shards &&
         std::equal(a.entries.begin(), a.entries.end(), b.entries.begin(), b.entries.end(),
                    [](const auto& x, const auto& y) { return x.name == y.name && x.shard == y.shard; });
}

void check_promises(const CheckpointIndex& index) {
  for (const std::string& shard : index.shards) {
    TREFOIL_CHECK(!shard.empty() && shard.find('/') == std::string::npos && shard.find("..") == std::string::npos);
  }
  for (size_t i = 0; i < index.entries.size(); ++i) {
    TREFOIL_CHECK(index.entries[i].shard < index.shards.size());
    TREFOIL_CHECK(i == 0 || index.entries[i - 1].name < index.entries[i].name);
    TREFOIL_CHECK(index.find(index.entries[i].name) == &index.entries[i]);
  }
}

}  // namespace
}  // namespace trefoil

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trefoil;
  CheckpointIndex index;
  if (!fuzz::accepts([&] { index = parse_index(fuzz::as_text(data, size), "fuzz"); })) return 0;
  check_promises(index);
  TREFOIL_CHECK(same(parse_index(write_index(index), "written"), index));
  return 0;
}
