#include "base/bytes.h"

#include <gtest/gtest.h>
#include <cmath>

#include "base/error.h"

namespace trefoil {
namespace {

TEST(Size, ReadsTheUnitsPeopleWrite) {
  EXPECT_EQ(parse_size("1500"), 1500u);
  EXPECT_EQ(parse_size("64GiB"), 64ull << 30);
  EXPECT_EQ(parse_size("1.5TB"), 1500000000000ull);
  EXPECT_EQ(parse_size(" 512 mb "), 512000000ull);
  EXPECT_EQ(parse_size("2g"), 2ull << 30);
}

TEST(Size, RefusesWhatIsNotASize) {
  for (const char* text : {"", "GiB", "12 parsecs", "-1GB", "1e40TB", "nan", "0x10", "1.5.5GB"})
    EXPECT_THROW(parse_size(text), Error) << text;
}

TEST(Size, IsWrittenWithThreeDigits) {
  EXPECT_EQ(format_gb(1220517721088ull), "1.22 TB");
  EXPECT_EQ(format_gb(999), "999 B");
  EXPECT_EQ(format_gib(6442450944ull), "6.00 GiB");
  EXPECT_EQ(format_count(497220), "497,220");
  EXPECT_EQ(format_count(12), "12");
}

TEST(Duration, IsWrittenInItsTwoLargestUnits) {
  EXPECT_EQ(format_duration(0.4), "0 s");
  EXPECT_EQ(format_duration(119.4), "119 s");
  EXPECT_EQ(format_duration(120), "2 min");
  EXPECT_EQ(format_duration(59.6 * 60), "1 h 0 min");
  EXPECT_EQ(format_duration(3 * 3600 + 20 * 60 + 29), "3 h 20 min");
  EXPECT_EQ(format_duration(86400 - 20), "1 d 0 h");
  EXPECT_EQ(format_duration(52 * 3600.0), "2 d 4 h");
  EXPECT_EQ(format_duration(-1), "0 s");
  EXPECT_EQ(format_duration(std::nan("")), "0 s");
  EXPECT_EQ(format_duration(HUGE_VAL), "11574074074 d 2 h");
}

TEST(SizeArithmetic, ReportsOverflow) {
  uint64_t out = 0;
  EXPECT_TRUE(multiply_fits(1ull << 32, 1ull << 31, &out));
  EXPECT_FALSE(multiply_fits(1ull << 32, 1ull << 32, &out));
  EXPECT_FALSE(add_fits(~0ull, 1, &out));
}

}  // namespace
}  // namespace trefoil
