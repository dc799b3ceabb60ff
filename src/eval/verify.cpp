#include "trefoil/verify.h"

#include <optional>

#include "base/error.h"
#include "base/parallel.h"
#include "eval/verify_check.h"
#include "eval/verify_config.h"
#include "eval/verify_container.h"
#include "eval/verify_experts.h"
#include "eval/verify_finite.h"
#include "eval/verify_source.h"
#include "eval/verify_values.h"

namespace trefoil {
namespace {

constexpr const char* kNoSource = "no source to compare with (--against)";

void check_options(const VerifyOptions& options) {
  if (options.sample_per_layer < 0)
    fail(ErrorCode::kInvalidArgument, "sample is {}, must not be negative", options.sample_per_layer);
  if (options.threads < 1) fail(ErrorCode::kInvalidArgument, "threads is {}, must be at least 1", options.threads);
  if (!(options.max_weight_error > 0))
    fail(ErrorCode::kInvalidArgument, "max_weight_error is {}, must be positive", options.max_weight_error);
  std::error_code error;
  if (!options.against.empty() && !fs::is_directory(options.against, error)) {
    fail(ErrorCode::kNotFound, "{}: not a folder", options.against.string());
  }
}

// "source": the source opens. Everything that compares needs it.
VerifyCheck check_source(const VerifyOptions& options, std::optional<Checkpoint>* source) {
  CheckRecorder check("source", "the source checkpoint opens", "checkpoints", options.max_findings);
  if (options.against.empty()) return std::move(check).skip(kNoSource);
  check.count();
  try {
    *source = Checkpoint::open(options.against, Checkpoint::Access::kRead);
  } catch (const Error& refused) {
    check.fail("", "", "", refused.what());
  }
  return std::move(check).finish();
}

VerifyCheck skipped(const char* id, const char* title, const std::string& reason) {
  return CheckRecorder(id, title, "", 0).skip(reason);
}

}  // namespace

VerifyReport verify(const VerifyOptions& options) {
  check_options(options);
  VerifyReport report;
  report.folder = options.folder.string();
  report.against = options.against.string();
  const FolderScan scan(options.folder);
  ThreadPool pool(options.threads);
  auto& checks = report.checks;

  // Files and headers.
  std::optional<Checkpoint> checkpoint;
  checks.push_back(check_container(scan, options));
  checks.push_back(check_index(scan, options));
  checks.push_back(check_opens(scan, options, &checkpoint));

  // What the tensors are, and what config.json says they are.
  ExpertSet experts;
  checks.push_back(check_structure(scan, options, &experts));
  checks.push_back(check_shapes(scan, options, claimed_bits(scan), &experts));
  checks.push_back(check_config(scan, options, experts));

  // Values.
  std::optional<Checkpoint> source;
  VerifyCheck source_check = check_source(options, &source);
  std::string no_source;
  if (!source) no_source = options.against.empty() ? kNoSource : "the source does not open";
  for (VerifyCheck& check : check_values(scan, options, experts, checkpoint ? &*checkpoint : nullptr,
                                         source ? &*source : nullptr, no_source, pool)) {
    checks.push_back(std::move(check));
  }
  checks.push_back(check_finite(scan, options, experts, pool));

  // Against the source and the published sums.
  checks.push_back(std::move(source_check));
  checks.push_back(
      source
          ? check_unchanged(scan, options, experts, *source, pool)
          : skipped("unchanged", "every other tensor is the source's, byte for byte, and none was added", no_source));
  checks.push_back(source ? check_side_files(scan, options, *source)
                          : skipped("side_files", "side files are the source's", no_source));
  checks.push_back(check_sums(scan, options, pool));
  return report;
}

}  // namespace trefoil
