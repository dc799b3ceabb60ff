#include "tensor/tensor_view.h"

#include <gtest/gtest.h>

namespace trefoil {
namespace {

TEST(DType, EveryNameComesBackWithItsSize) {
  const std::pair<const char*, int> all[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
                                             {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
                                             {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8}};
  for (const auto& [name, size] : all) {
    const std::optional<DType> dtype = parse_dtype(name);
    ASSERT_TRUE(dtype) << name;
    EXPECT_EQ(to_string(*dtype), name);
    EXPECT_EQ(element_size(*dtype), size) << name;
  }
  EXPECT_EQ(parse_dtype("bf16"), std::nullopt);
  EXPECT_EQ(parse_dtype(""), std::nullopt);
}

TEST(ByteSize, CountsElementsAndRefusesOverflow) {
  uint64_t bytes = 1;
  EXPECT_TRUE(byte_size_of({}, DType::kI64, &bytes));
  EXPECT_EQ(bytes, 8u);  // a scalar
  EXPECT_TRUE(byte_size_of({3072, 56}, DType::kBF16, &bytes));
  EXPECT_EQ(bytes, 344064u);
  EXPECT_TRUE(byte_size_of({0, INT64_MAX}, DType::kF32, &bytes));
  EXPECT_EQ(bytes, 0u);
  EXPECT_FALSE(byte_size_of({-1}, DType::kU8, &bytes));
  EXPECT_FALSE(byte_size_of({INT64_MAX, 2}, DType::kU8, &bytes));
  EXPECT_FALSE(byte_size_of({INT64_C(1) << 62}, DType::kI64, &bytes));
  EXPECT_FALSE(byte_size_of({INT64_C(1) << 32, INT64_C(1) << 32, 0}, DType::kU8, &bytes)) << "overflows on the way";
  EXPECT_TRUE(byte_size_of({INT64_MAX}, DType::kU8, &bytes));
  EXPECT_FALSE(byte_size_of({INT64_MAX}, DType::kBF16, &bytes));
}

TEST(Shape, PrintsLikeAListOfNumbers) {
  EXPECT_EQ(to_string(Shape{3072, 56}), "[3072, 56]");
  EXPECT_EQ(to_string(Shape{}), "[]");
}

}  // namespace
}  // namespace trefoil
