// The safetensors header parser. Input: 8 bytes of data size, little-endian, then the header's JSON.
// Whatever is accepted tiles the data and keeps each promise of SafetensorsHeader.
#include <algorithm>
#include <string>

#include "base/check.h"
#include "checkpoint/safetensors.h"
#include "fuzz.h"

namespace trefoil {
namespace {

void check_promises(const SafetensorsHeader& header, uint64_t data_size) {
  uint64_t expected_begin = 0;
  for (const TensorInfo& tensor : header.tensors) {
    uint64_t bytes = 0;
    TREFOIL_CHECK(tensor.begin == expected_begin && !tensor.name.empty());
    TREFOIL_CHECK(byte_size_of(tensor.shape, tensor.dtype, &bytes) && bytes == tensor.size());
    expected_begin = tensor.end;
  }
  TREFOIL_CHECK(expected_begin == data_size);
}

}  // namespace
}  // namespace trefoil

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trefoil;
  if (size < 8) return 0;
  // Any 62-bit data size: claims beyond the file must be refused, claims inside it never cost memory.
  const uint64_t data_size = load<uint64_t>(data) >> 2;
  const std::string_view json = fuzz::as_text(data + 8, size - 8);
  fuzz::accepts(
      [&] { check_promises(parse_safetensors_header(json, 8 + json.size() + data_size, "fuzz"), data_size); });
  return 0;
}
