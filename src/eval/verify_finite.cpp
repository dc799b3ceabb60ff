#include "eval/verify_finite.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "eval/verify_check.h"
#include "eval/verify_steps.h"
#include "tensor/finite.h"

namespace trefoil {
namespace {

constexpr uint64_t kPiece = 4ull << 20;  // a multiple of every element size

// What is wrong with one tensor; empty when nothing is.
std::string find_fault(const FolderScan& scan, const ScannedTensor& tensor) {
  const uint64_t size = tensor.info->size();
  std::vector<std::byte> piece(static_cast<size_t>(std::min(size, kPiece)));
  try {
    for (uint64_t offset = 0; offset < size; offset += kPiece) {
      const MutableBytes part = MutableBytes(piece).first(static_cast<size_t>(std::min(kPiece, size - offset)));
      scan.read(tensor, offset, part);
      if (const auto bad = first_non_finite(tensor.info->dtype, part)) {
        const int64_t element = static_cast<int64_t>(offset) / element_size(tensor.info->dtype) + *bad;
        return fmt::format("infinity or NaN at element {}", element);
      }
    }
  } catch (const Error& unreadable) {
    return unreadable.what();
  }
  return "";
}

}  // namespace

VerifyCheck check_finite(const FolderScan& scan, const VerifyOptions& options, const ExpertSet& experts,
                         ThreadPool& pool) {
  CheckRecorder check("finite", "every other floating tensor holds finite numbers only", "tensors",
                      options.max_findings);
  std::set<std::string_view> modules;
  for (const ExpertLinear& linear : experts.linears) modules.insert(linear.module);
  std::vector<const ScannedTensor*> tensors;
  for (const ScannedTensor& tensor : scan.tensors()) {
    const auto parts = parse_expert_tensor_name(tensor.info->name);
    if (is_floating(tensor.info->dtype) && !(parts && modules.contains(parts->module))) tensors.push_back(&tensor);
  }
  const auto total = static_cast<int64_t>(tensors.size());
  std::vector<std::string> faults(tensors.size());
  VerifySteps steps(options, "verify: finite tensors", total);
  pool.parallel_for(total, [&](int64_t i) {
    steps.begin();
    faults[static_cast<size_t>(i)] = find_fault(scan, *tensors[static_cast<size_t>(i)]);
    steps.end();
  });
  for (size_t i = 0; i < tensors.size(); ++i) {
    check.count();
    if (!faults[i].empty())
      check.fail(tensors[i]->info->name, scan.shard_name(*tensors[i]), "finite numbers", faults[i]);
  }
  return std::move(check).finish();
}

}  // namespace trefoil
