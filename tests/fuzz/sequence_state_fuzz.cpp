// The state of a sequence as a file, for a model of two layers. The checksum at the end, which nothing random would get
// right, is added here.
#include <algorithm>

#include "base/check.h"
#include "base/sha256.h"
#include "fuzz.h"
#include "model/sequence_snapshot.h"

namespace {

trefoil::SequenceSnapshot read(const trefoil::SnapshotShape& shape, const std::string& file) {
  return trefoil::read_snapshot(shape, {"input", file.size(), [&](uint64_t offset, trefoil::MutableBytes out) {
                                          TREFOIL_CHECK(offset <= file.size() && out.size() <= file.size() - offset);
                                          std::copy_n(trefoil::as_bytes_of(file).begin() + static_cast<int64_t>(offset),
                                                      out.size(), out.begin());
                                        }});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trefoil;
  const SnapshotShape shape{std::string(64, 'a'), 7, 100, {{3, 4, 0}, {0, 0, 2}}};
  std::string file(fuzz::as_text(data, size));
  file += sha256_hex(as_bytes_of(file));
  SequenceSnapshot snapshot;
  if (!fuzz::accepts([&] { snapshot = read(shape, file); })) return 0;
  TREFOIL_CHECK(snapshot.state.position == static_cast<int64_t>(snapshot.ids.size()));
  TREFOIL_CHECK(snapshot.state.layers.size() == 2 && snapshot.state.layers[0].recurrent.size() == 4);
  TREFOIL_CHECK(snapshot.state.layers[1].kv.size() == 2 * snapshot.ids.size());
  TREFOIL_CHECK(snapshot.logits.size() == (snapshot.ids.empty() ? 0 : 7));
  TREFOIL_CHECK(snapshot.bytes() <= 4 * file.size());
  return 0;
}
