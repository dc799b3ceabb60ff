#include "base/sha256.h"

#include <gtest/gtest.h>

namespace trefoil {
namespace {

// FIPS 180-4 examples.
TEST(Sha256, MatchesPublishedVectors) {
  EXPECT_EQ(sha256_hex(as_bytes_of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex({}), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256, DoesNotDependOnHowTheBytesArrive) {
  Sha256 pieces;
  pieces.update(as_bytes_of("a"));
  pieces.update({});
  pieces.update(as_bytes_of("bc"));
  EXPECT_EQ(pieces.hex(), sha256_hex(as_bytes_of("abc")));
}

}  // namespace
}  // namespace trefoil
