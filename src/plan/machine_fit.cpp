#include "plan/machine_fit.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"

namespace trefoil {
namespace {

int64_t difference(uint64_t have, uint64_t need) {
  return static_cast<int64_t>(have) - static_cast<int64_t>(need);
}

std::string seconds(double bytes, double gb_per_s) {
  return fmt::format("{:.2g} s", bytes / 1e9 / gb_per_s);
}

FormFit stream(const PlannedForm& form, FormFit fit, uint64_t memory, const FitNeeds& needs) {
  const uint64_t cache = memory - form.rest_bytes - needs.state_bytes;
  const double hit = std::min(1.0, static_cast<double>(cache) / static_cast<double>(form.expert_bytes()));
  const double from_disk = (1 - hit) * static_cast<double>(needs.routed_per_token);
  fit.verdict = FormFit::Verdict::kStreams;
  fit.why = fmt::format(
      "{} stay in memory, {} hold {:.0f} % of the experts; the rest is {} of disk per token, {} at {:g} GB/s",
      format_gb(form.rest_bytes + needs.state_bytes), format_gb(cache), 100 * hit,
      format_gb(static_cast<uint64_t>(from_disk)), seconds(from_disk, needs.disk_gb_per_s), needs.disk_gb_per_s);
  return fit;
}

FormFit refuse_trunk(const PlannedForm& form, FormFit fit, const FitNeeds& needs) {
  fit.why = fmt::format("not even the {} every token needs; from disk that is at least {} per token at {:g} GB/s",
                        format_gb(form.rest_bytes),
                        seconds(static_cast<double>(form.bytes_per_token), needs.disk_gb_per_s), needs.disk_gb_per_s);
  return fit;
}

}  // namespace

FormFit fit(const PlannedForm& form, const Machine& machine, const FitNeeds& needs) {
  const uint64_t memory = machine.memory_bytes();
  const uint64_t need = form.total_bytes() + needs.state_bytes;
  FormFit fit;
  fit.form = form.name;
  fit.margin_bytes = difference(memory, need);
  if (memory >= need) {
    fit.verdict = FormFit::Verdict::kFits;
    fit.why = fmt::format("{} of weights and {} of state leave {}", format_gb(form.total_bytes()),
                          format_gb(needs.state_bytes), format_gb(memory - need));
    return fit;
  }
  if (!machine.gpu && form.expert_bytes() > 0) {
    if (memory >= form.rest_bytes + needs.state_bytes) return stream(form, fit, memory, needs);
    return refuse_trunk(form, fit, needs);
  }
  fit.why = fmt::format("{} of weights and {} of state are {} too much", format_gb(form.total_bytes()),
                        format_gb(needs.state_bytes), format_gb(need - memory));
  return fit;
}

}  // namespace trefoil
