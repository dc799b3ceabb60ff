#include "model/weight_shape.h"

#include "base/error.h"
#include "model/weights.h"

namespace trefoil {
namespace {

bool agree(const Shape& found, const Shape& expected) {
  if (found.size() != expected.size()) return false;
  for (size_t i = 0; i < found.size(); ++i) {
    if (expected[i] != kAnySize && expected[i] != found[i]) return false;
  }
  return true;
}

std::string describe(const Shape& shape) {
  std::string text;
  for (const int64_t size : shape) {
    text += (text.empty() ? "" : ", ") + (size == kAnySize ? std::string("any") : std::to_string(size));
  }
  return "[" + text + "]";
}

}  // namespace

void require_shape(std::string_view name, const Shape& found, const Shape& expected) {
  if (!agree(found, expected)) {
    fail(ErrorCode::kCorrupt, "{}: shape {}, expected {}", name, to_string(found), describe(expected));
  }
}

}  // namespace trefoil
