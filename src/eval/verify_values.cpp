#include "eval/verify_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "eval/verify_check.h"
#include "eval/verify_linear.h"
#include "eval/verify_steps.h"

namespace trefoil {
namespace {

// Every Linear, or `per_layer` of each layer evenly spread with both ends among them; those without a storage left out.
std::vector<const ExpertLinear*> choose(const ExpertSet& experts, int64_t per_layer) {
  std::map<int64_t, std::vector<const ExpertLinear*>> layers;
  for (const ExpertLinear& linear : experts.linears) {
    if (linear.storage) layers[linear.layer].push_back(&linear);
  }
  std::vector<const ExpertLinear*> chosen;
  for (const auto& [layer, linears] : layers) {
    const auto total = static_cast<int64_t>(linears.size());
    const int64_t wanted = per_layer == 0 ? total : std::min(per_layer, total);
    for (int64_t i = 0; i < wanted; ++i) {
      const int64_t at = wanted == 1 ? 0 : i * (total - 1) / (wanted - 1);
      chosen.push_back(linears[static_cast<size_t>(at)]);
    }
  }
  return chosen;
}

// Sums over Linears of one matrix kind (w1, w2, w3).
struct KindTotals {
  std::array<uint64_t, 256> histogram{};
  double error_sum = 0;
  double worst_error = 0;
  std::string worst_module;
  uint64_t compared = 0;
};

class ValueChecks {
 public:
  ValueChecks(const FolderScan& scan, const VerifyOptions& options, const ExpertSet& experts)
      : scan_(scan),
        options_(options),
        storage_(experts.storage),
        scales_("scales", "scales are finite and not zero", "scales", options.max_findings),
        pads_("pad_bits", "bits that hold no code are zero", "expert Linears", options.max_findings),
        codes_("codes", "no expert Linear is one code throughout", "expert Linears", options.max_findings),
        decode_("decode", "two independent decoders give the same bf16 bits", "expert Linears", options.max_findings),
        weights_("weights", fmt::format("experts are within {} of the source's", options.max_weight_error),
                 "expert Linears", options.max_findings) {}

  void add(const ExpertLinear& linear, const LinearValues& values);
  std::vector<VerifyCheck> finish(const Checkpoint* checkpoint, const std::string& no_source,
                                  const std::string& sampling) &&;

 private:
  void add_scales(const ExpertLinear& linear, const LinearValues& values);
  void add_codes(const ExpertLinear& linear, const LinearValues& values);
  void add_decode(const ExpertLinear& linear, const LinearValues& values);
  void add_weights(const ExpertLinear& linear, const LinearValues& values);
  void describe_scales();
  void describe_codes();
  void describe_weights();

  const FolderScan& scan_;
  const VerifyOptions& options_;
  std::optional<StoredAs> storage_;
  CheckRecorder scales_;
  CheckRecorder pads_;
  CheckRecorder codes_;
  CheckRecorder decode_;
  CheckRecorder weights_;
  std::array<KindTotals, 3> kinds_;
  uint64_t negative_ = 0;
  uint64_t subnormal_ = 0;
  uint64_t eps_ = 0;
};

void ValueChecks::add(const ExpertLinear& linear, const LinearValues& values) {
  if (!values.is_read) {
    decode_.fail(linear.module, scan_.shard_name(*linear.packed), "readable bytes", values.read_error);
    return;
  }
  add_scales(linear, values);
  pads_.count();
  if (values.bad_pads.count > 0) {
    pads_.fail(linear.packed->info->name, scan_.shard_name(*linear.packed), "zero bits where no code is",
               fmt::format("others in {} rows, first {}", values.bad_pads.count, values.bad_pads.first));
  }
  add_codes(linear, values);
  add_decode(linear, values);
  add_weights(linear, values);
}

void ValueChecks::add_scales(const ExpertLinear& linear, const LinearValues& values) {
  scales_.count(values.num_scales);
  negative_ += values.negative_scales;
  subnormal_ += values.subnormal_scales;
  eps_ += values.eps_scales;
  if (values.bad_scales.count > 0) {
    scales_.fail(linear.scale->info->name, scan_.shard_name(*linear.scale), "finite, not zero",
                 fmt::format("{} bad, first {}", values.bad_scales.count, values.bad_scales.first));
  }
}

void ValueChecks::add_codes(const ExpertLinear& linear, const LinearValues& values) {
  codes_.count();
  auto& histogram = kinds_[static_cast<size_t>(linear.matrix - 1)].histogram;
  for (size_t code = 0; code < histogram.size(); ++code) histogram[code] += values.histogram[code];
  if (values.num_codes != 1) return;
  const bool is_explained = values.is_compared && values.is_source_constant;
  const auto code = std::find_if(values.histogram.begin(), values.histogram.end(), [](uint64_t n) { return n > 0; });
  const std::string found = fmt::format("only code {}", code - values.histogram.begin());
  if (is_explained) {
    codes_.warn(linear.packed->info->name, scan_.shard_name(*linear.packed), "",
                found + ", as the constant source has it");
  } else {
    codes_.fail(linear.packed->info->name, scan_.shard_name(*linear.packed), "more than one code", found);
  }
}

void ValueChecks::add_decode(const ExpertLinear& linear, const LinearValues& values) {
  const std::string& file = scan_.shard_name(*linear.packed);
  if (!values.decode_error.empty()) {
    decode_.fail(linear.module, file, "decodable", values.decode_error);
  } else if (values.mismatches.count > 0) {
    decode_.fail(linear.module, file, "equal bits",
                 fmt::format("{} differ, first {}", values.mismatches.count, values.mismatches.first));
  }
  if (values.is_decoded) decode_.count();
}

void ValueChecks::add_weights(const ExpertLinear& linear, const LinearValues& values) {
  const std::string& file = scan_.shard_name(*linear.packed);
  if (!values.source_error.empty())
    weights_.fail(linear.module, file, "the same Linear in the source", values.source_error);
  if (!values.is_compared) return;
  weights_.count();
  KindTotals& kind = kinds_[static_cast<size_t>(linear.matrix - 1)];
  const double error = values.relative_error();
  kind.error_sum += error;
  ++kind.compared;
  if (error > kind.worst_error) {
    kind.worst_error = error;
    kind.worst_module = linear.module;
  }
  if (!(error <= options_.max_weight_error)) {
    weights_.fail(linear.module, file, fmt::format("relative error at most {}", options_.max_weight_error),
                  fmt::format("{:.3f} (another expert's weights give 1 or more)", error));
  }
}

void ValueChecks::describe_scales() {
  scales_.figure("negative_scales", static_cast<double>(negative_));
  scales_.figure("subnormal_scales", static_cast<double>(subnormal_));
  scales_.figure("eps_scales", static_cast<double>(eps_));
  if (storage_ && storage_->format == LinearFormat::kPackedInt) {
    scales_.note(fmt::format("{} negative, {} subnormal, {} equal to 2^-7", negative_, subnormal_, eps_));
  }
}

// Shares of the codes that occur, as signed values for integers. 8 bits have too many for a line.
void ValueChecks::describe_codes() {
  for (size_t kind = 0; storage_ && kind < kinds_.size(); ++kind) {
    const auto& histogram = kinds_[kind].histogram;
    uint64_t total = 0;
    for (const uint64_t n : histogram) total += n;
    const int num_codes = 1 << storage_->num_bits;
    const int offset = storage_->format == LinearFormat::kPackedInt ? num_codes / 2 : 0;
    std::string line;
    for (int code = 0; code < num_codes; ++code) {
      const double share =
          total == 0 ? 0 : static_cast<double>(histogram[static_cast<size_t>(code)]) / static_cast<double>(total);
      codes_.figure(fmt::format("w{}_code_{}", kind + 1, code - offset), share);
      line += fmt::format("  {}: {:.1f}%", code - offset, 100 * share);
    }
    if (total > 0 && num_codes <= 16) codes_.note(fmt::format("w{} codes{}", kind + 1, line));
  }
}

void ValueChecks::describe_weights() {
  for (size_t kind = 0; kind < kinds_.size(); ++kind) {
    const KindTotals& totals = kinds_[kind];
    if (totals.compared == 0) continue;
    const double mean = totals.error_sum / static_cast<double>(totals.compared);
    weights_.figure(fmt::format("w{}_mean_error", kind + 1), mean);
    weights_.figure(fmt::format("w{}_worst_error", kind + 1), totals.worst_error);
    weights_.note(fmt::format("w{} relative error: mean {:.4f}, worst {:.4f}{}{}", kind + 1, mean, totals.worst_error,
                              totals.worst_module.empty() ? "" : " in ", totals.worst_module));
  }
}

std::vector<VerifyCheck> ValueChecks::finish(const Checkpoint* checkpoint, const std::string& no_source,
                                             const std::string& sampling) && {
  describe_scales();
  describe_codes();
  describe_weights();
  if (!sampling.empty()) {
    for (CheckRecorder* check : {&scales_, &pads_, &codes_, &decode_, &weights_}) check->note(sampling);
  }
  std::vector<VerifyCheck> checks;
  checks.push_back(std::move(scales_).finish());
  checks.push_back(storage_ && storage_->format == LinearFormat::kMxfp4 ? std::move(pads_).skip("MXFP4 has no pad bits")
                                                                        : std::move(pads_).finish());
  checks.push_back(std::move(codes_).finish());
  checks.push_back(checkpoint == nullptr && decode_.failures() == 0
                       ? std::move(decode_).skip("the folder does not open, so its own decoder cannot run")
                       : std::move(decode_).finish());
  checks.push_back(no_source.empty() ? std::move(weights_).finish() : std::move(weights_).skip(no_source));
  return checks;
}

// Numbers the product may need to tell widths apart: the model's own.
int bits_hint(const ExpertSet& experts) {
  return experts.storage && experts.storage->format == LinearFormat::kPackedInt ? experts.storage->num_bits : 0;
}

}  // namespace

std::vector<VerifyCheck> check_values(const FolderScan& scan, const VerifyOptions& options, const ExpertSet& experts,
                                      const Checkpoint* checkpoint, const Checkpoint* source,
                                      const std::string& no_source, ThreadPool& pool) {
  const std::vector<const ExpertLinear*> chosen = choose(experts, options.sample_per_layer);
  const auto total = static_cast<int64_t>(chosen.size());
  const LinearReader reader{scan, checkpoint, source, bits_hint(experts)};
  ValueChecks checks(scan, options, experts);

  // Results are added in order, however threads finish, so that the report does not depend on them; a batch bounds
  // memory.
  constexpr int64_t kBatch = 1024;
  VerifySteps steps(options, "verify: expert weights", total);
  for (int64_t begin = 0; begin < total; begin += kBatch) {
    const int64_t size = std::min(kBatch, total - begin);
    std::vector<LinearValues> results(static_cast<size_t>(size));
    pool.parallel_for(size, [&](int64_t i) {
      steps.begin();
      results[static_cast<size_t>(i)] = reader.read(*chosen[static_cast<size_t>(begin + i)]);
      steps.end();
    });
    for (int64_t i = 0; i < size; ++i)
      checks.add(*chosen[static_cast<size_t>(begin + i)], results[static_cast<size_t>(i)]);
  }
  std::string sampling;
  if (options.sample_per_layer > 0) {
    sampling = fmt::format("{} of {} expert Linears read (a sample)", total, experts.linears.size());
  }
  return std::move(checks).finish(checkpoint, no_source, sampling);
}

}  // namespace trefoil
