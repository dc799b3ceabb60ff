#include "checkpoint/gzip.h"

#include <gtest/gtest.h>

#include <array>

#include "trefoil/error.h"

namespace trefoil {
namespace {

// printf 'hello hello hello\n' | gzip -n
constexpr std::array<unsigned char, 29> kHello = {0x1f, 0x8b, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03,
                                                  0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x57, 0xc8, 0x40, 0x90, 0x5c,
                                                  0x00, 0x3b, 0x7c, 0x8a, 0xdf, 0x12, 0x00, 0x00, 0x00};

Bytes first(size_t count) {
  return std::as_bytes(std::span(kHello)).first(count);
}

TEST(Gunzip, UncompressesWhatGzipWrote) {
  EXPECT_EQ(gunzip(first(kHello.size()), 100, "a.gz"), "hello hello hello\n");
  EXPECT_EQ(gunzip(first(kHello.size()), 18, "a.gz").size(), 18u);
}

TEST(Gunzip, RefusesEveryTruncation) {
  for (size_t size = 0; size < kHello.size(); ++size) EXPECT_THROW(gunzip(first(size), 100, "a.gz"), Error) << size;
}

TEST(Gunzip, RefusesMoreThanTheLimit) {
  EXPECT_THROW(gunzip(first(kHello.size()), 17, "a.gz"), Error);
}

TEST(Gunzip, RefusesDamageAndTrailingBytes) {
  std::array<unsigned char, 30> bytes{};
  std::copy(kHello.begin(), kHello.end(), bytes.begin());
  EXPECT_THROW(gunzip(std::as_bytes(std::span(bytes)), 100, "a.gz"), Error);
  bytes[12] ^= 1;
  EXPECT_THROW(gunzip(std::as_bytes(std::span(bytes)).first(29), 100, "a.gz"), Error);
}

}  // namespace
}  // namespace trefoil
