#include "base/error.h"

namespace trefoil {

const char* to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kCheckFailed:
      return "check failed";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kIo:
      return "i/o";
    case ErrorCode::kOverBudget:
      return "over budget";
    case ErrorCode::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

}  // namespace trefoil
