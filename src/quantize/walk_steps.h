// The steps of a job in their order, from the config and the options alone: what walk() does, what a plan of it counts,
// and what a report sums time by.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/model_config.h"
#include "quantize/activation_store.h"
#include "quantize/source_experts.h"
#include "trefoil/quantize.h"

namespace trefoil {

enum class StepKind { kEmbedding, kAttention, kExpertPass, kSharedHessian, kExperts, kCopying };
constexpr std::array<StepKind, 6> kStepKinds = {StepKind::kEmbedding,     StepKind::kAttention, StepKind::kExpertPass,
                                                StepKind::kSharedHessian, StepKind::kExperts,   StepKind::kCopying};
const char* to_string(
    StepKind kind);  // "embedding", "attention", "expert_pass", "shared_hessian", "experts", "copying"
// Nothing for a name that is none of these.
std::optional<StepKind> parse_step_kind(std::string_view name);

// What runs through all experts of a layer in one go, and what is done with the sums.
struct ExpertPass {
  bool quantized_experts = false;
  bool keeps_effect = false;          // mean squares of the sums, for token weights
  std::optional<Stream> finishes_to;  // the stream whose next layer's input it makes
};

struct WalkStep {
  StepKind kind = StepKind::kEmbedding;
  int64_t layer = 0;
  std::string name;                    // of its units: unit_names.h
  std::string title;                   // for people: "attention, original stream"
  Stream stream = Stream::kQuantized;  // that it reads
  ExpertPass pass;                     // of kExpertPass
};

// `layers` are those to quantize. The copying of unchanged tensors, which no layer has, is not among them.
std::vector<WalkStep> walk_steps(const ModelConfig& config, const QuantizeOptions& options,
                                 const std::vector<MoeLayer>& layers);

// How the steps are cut. Chosen once for a job (plan/quantize_needs.h) and kept in its folder: no result depends on it.
struct WorkGrain {
  int64_t unit_rows = 1;         // calibration rows of a unit of attention
  int64_t pass_rows = 1;         // rows that go through all experts at once; a multiple of unit_rows
  int64_t experts_per_unit = 8;  // experts of a unit of solving
};

// "layer 3 of 0..92: experts"
std::string stage_of(const WalkStep& step, int64_t last_layer);

// Whether a second stream, of the original model, runs beside the quantized one.
bool has_original_stream(const QuantizeOptions& options);

// The layer at which the original stream leaves the quantized one: the first to be quantized.
int64_t split_layer_of(const std::vector<MoeLayer>& layers);

}  // namespace trefoil
