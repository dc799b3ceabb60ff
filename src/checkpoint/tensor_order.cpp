#include "checkpoint/tensor_order.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "base/check.h"

namespace trefoil {
namespace {

constexpr std::string_view kPacked = ".weight_packed";
constexpr std::string_view kScale = ".weight_scale";
constexpr std::string_view kShape = ".weight_shape";

// The place of a dtype in the order of the safetensors package 0.4 to 0.6.
int package_rank(DType dtype) {
  constexpr DType kOrder[] = {DType::kU64,    DType::kI64,    DType::kF64, DType::kF32, DType::kU32,
                              DType::kI32,    DType::kBF16,   DType::kF16, DType::kU16, DType::kI16,
                              DType::kF8E4M3, DType::kF8E5M2, DType::kI8,  DType::kU8,  DType::kBool};
  const auto* at = std::find(std::begin(kOrder), std::end(kOrder), dtype);
  TREFOIL_CHECK(at != std::end(kOrder));
  return static_cast<int>(at - std::begin(kOrder));
}

// Of TensorInfo or TensorPlan.
constexpr auto kPackageLess = [](const auto& a, const auto& b) {
  return precedes_in_package_order(a.dtype, a.name, b.dtype, b.name);
};

// "...experts.17.w1.weight_packed" -> "...experts.17"
std::string_view expert_of(std::string_view name) {
  const size_t module_end = name.rfind('.');
  const size_t expert_end = module_end == std::string_view::npos ? module_end : name.rfind('.', module_end - 1);
  return name.substr(0, expert_end == std::string_view::npos ? name.size() : expert_end);
}

// 0: read with the expert; 1: weight_shape; 2: everything else.
int part_of(std::string_view name) {
  if (name.ends_with(kPacked) || name.ends_with(kScale)) return 0;
  return name.ends_with(kShape) ? 1 : 2;
}

// No expert's weights are interrupted by another tensor.
bool experts_are_contiguous(const std::vector<TensorPlan>& tensors) {
  std::set<std::string_view> finished;
  std::string_view current;
  for (const TensorPlan& tensor : tensors) {
    const std::string_view expert = part_of(tensor.name) == 0 ? expert_of(tensor.name) : std::string_view();
    if (expert == current) continue;
    if (!current.empty()) finished.insert(current);
    if (finished.contains(expert)) return false;
    current = expert;
  }
  return true;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view take_digits(std::string_view& text) {
  size_t length = 0;
  while (length < text.size() && is_digit(text[length])) ++length;
  const std::string_view digits = text.substr(0, length);
  text.remove_prefix(length);
  return digits;
}

}  // namespace

bool precedes_in_package_order(DType dtype_a, std::string_view name_a, DType dtype_b, std::string_view name_b) {
  return std::tuple(package_rank(dtype_a), name_a) < std::tuple(package_rank(dtype_b), name_b);
}

bool is_in_package_order(const std::vector<TensorInfo>& tensors) {
  return std::is_sorted(tensors.begin(), tensors.end(), kPackageLess);
}

void sort_into_package_order(std::vector<TensorPlan>& tensors) {
  std::sort(tensors.begin(), tensors.end(), kPackageLess);
}

void make_experts_contiguous(std::vector<TensorPlan>& tensors) {
  if (experts_are_contiguous(tensors)) return;
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorPlan& a, const TensorPlan& b) {
    const int part_a = part_of(a.name);
    const int part_b = part_of(b.name);
    if (part_a != part_b || part_a == 2) return part_a < part_b;
    return natural_less(a.name, b.name);  // "weight_packed" before "weight_scale" by the alphabet
  });
}

bool natural_less(std::string_view a, std::string_view b) {
  while (!a.empty() && !b.empty()) {
    if (is_digit(a[0]) && is_digit(b[0])) {
      const std::string_view digits_a = take_digits(a);
      const std::string_view digits_b = take_digits(b);
      if (digits_a == digits_b) continue;
      return std::tuple(digits_a.size(), digits_a) < std::tuple(digits_b.size(), digits_b);
    }
    if (a[0] != b[0]) return a[0] < b[0];
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return a.empty() && !b.empty();
}

}  // namespace trefoil
