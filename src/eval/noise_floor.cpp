#include "eval/noise_floor.h"

#include <fmt/format.h>

#include <algorithm>

#include "eval/summarize.h"

namespace trefoil {
namespace {

constexpr int64_t kOddChunk = 37;  // divides no usual row length and is no multiple of a chunk of the chunked KDA form

int64_t longest_of(const EvalText& text) {
  size_t longest = 0;
  for (const EvalRow& row : text.rows) longest = std::max(longest, row.ids.size());
  return static_cast<int64_t>(longest);
}

}  // namespace

std::vector<NoiseVariant> noise_variants(const ForwardOptions& base, const CompareSettings& settings, int64_t num_rows,
                                         int64_t longest_row) {
  std::vector<NoiseVariant> variants;
  const int64_t whole = settings.prefill_chunk > 0 ? std::min(settings.prefill_chunk, longest_row) : longest_row;
  const int64_t chunk = std::min(kOddChunk, whole - 1);
  if (chunk > 0) {
    variants.push_back({"chunks", fmt::format("prefill in chunks of {} tokens instead of {}", chunk, whole), base, {}});
    variants.back().split.chunk = chunk;
  }
  const int64_t together = std::min(settings.batch_rows, num_rows);
  if (together > 1) {
    variants.push_back({"batch", fmt::format("rows one at a time instead of {} together", together), base, {}});
    variants.back().split.rows_apart = true;
  }
  variants.push_back({"kda_form", "chunked form of KDA instead of the recurrent one", base, {}});
  variants.back().forward.kda = KdaForm::kChunked;
  variants.push_back({"mla_form", "absorbed form of MLA instead of the expanded one", base, {}});
  variants.back().forward.mla = MlaForm::kAbsorbed;
  const bool f32 = base.numerics == Numerics::kF32;
  variants.push_back({"numerics", f32 ? "bf16 numerics instead of f32" : "f32 numerics instead of bf16", base, {}});
  variants.back().forward.numerics = f32 ? Numerics::kBf16 : Numerics::kF32;
  if (f32) return variants;  // kernels on packed weights take bf16 activations
  for (const KernelMode mode : {KernelMode::kExact, KernelMode::kFast16, KernelMode::kFast8, KernelMode::kReference}) {
    if (mode == base.kernels) continue;
    const std::string name = to_string(mode);
    variants.push_back(
        {"kernels_" + name, fmt::format("{} kernels instead of {}", name, to_string(base.kernels)), base, {}});
    variants.back().forward.kernels = mode;
  }
  return variants;
}

std::vector<NoiseSummary> measure_noise_floor(const EvalText& text, const LoadedModel& reference,
                                              const ForwardOptions& base, const CompareSettings& settings,
                                              ThreadPool& pool, ProgressSink& progress) {
  const std::vector<NoiseVariant> variants =
      noise_variants(base, settings, static_cast<int64_t>(text.rows.size()), longest_of(text));
  const std::unique_ptr<Model> judged = reference.make_model(base, pool);
  ModelLogits expected(reference.label, *judged);
  std::vector<std::unique_ptr<Model>> models;
  std::vector<std::unique_ptr<ModelLogits>> found;
  std::vector<LogitsProvider*> providers;
  for (const NoiseVariant& variant : variants) {
    models.push_back(reference.make_model(variant.forward, pool));
    found.push_back(
        std::make_unique<ModelLogits>(reference.label + " (" + variant.varied + ")", *models.back(), variant.split));
    providers.push_back(found.back().get());
  }
  CompareSettings staged = settings;
  staged.stage = "noise floor";
  const ScoredTokens table = compare_models(text, expected, providers, staged, pool, progress);
  std::vector<NoiseSummary> summaries;
  for (size_t v = 0; v < variants.size(); ++v) {
    summaries.push_back(summarize_noise(table, v));
    summaries.back().name = variants[v].name;
    summaries.back().varied = variants[v].varied;
  }
  return summaries;
}

}  // namespace trefoil
