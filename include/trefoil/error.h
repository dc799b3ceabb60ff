// How Trefoil reports that the world is wrong: bytes, flags, disk, budget. Part of the public interface.
//
// Three kinds of trouble are kept apart: the world is wrong (throw Error), we are wrong (TREFOIL_CHECK in base/check.h
// aborts), and something is merely absent (std::optional, a null find). Messages carry place, subject, expected and found.
#pragma once

#include <stdexcept>
#include <string>

namespace trefoil {

// What the caller can do about it. The command line maps each to an exit code (docs/cli.md).
enum class ErrorCode {
  kInvalidArgument,  // the request is wrong: change it (exit 2)
  kCheckFailed,      // a check that was asked for did not pass (exit 3)
  kNotFound,         // a file or tensor is not there (exit 4)
  kCorrupt,          // the bytes contradict themselves or the format (exit 4)
  kUnsupported,      // well formed, but nothing here can handle it (exit 4)
  kIo,               // the operating system refused: disk full, read error, permission (exit 5)
  kOverBudget,       // memory or disk budget too small for the task (exit 5)
  kCancelled,        // stopped in a state that can be resumed (exit 75)
};

const char* to_string(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace trefoil
