// SHA-256 of byte streams, for provenance and published sums. OpenSSL does the work.
#pragma once

#include <memory>
#include <string>

#include "base/bytes.h"

namespace trefoil {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(Bytes bytes);
  // The digest as 64 lower-case hex digits. Call once.
  std::string hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string sha256_hex(Bytes bytes);

}  // namespace trefoil
