// What the ledger calls the units of a job.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace trefoil {

// "L003.experts": the step of a layer.
inline std::string step_name(int64_t layer, std::string_view step) {
  return fmt::format("L{:03}.{}", layer, step);
}
// "L003.experts.00064": the experts from 64 on of layer 3; "L003.attend-q.00002": row block 2. Layers sort as numbers.
inline std::string unit_name(int64_t layer, std::string_view step, int64_t index) {
  return fmt::format("{}.{:05}", step_name(layer, step), index);
}

inline constexpr std::string_view kExpertStep = "experts";
inline constexpr std::string_view kCopyStep = "shard";
inline constexpr std::string_view kCopyTitle = "unchanged tensors";

// "shard.model-00001-of-000008.safetensors": the unchanged tensors of a shard.
inline std::string copy_unit_name(std::string_view shard_file) {
  return fmt::format("{}.{}", kCopyStep, shard_file);
}
inline bool is_expert_unit(std::string_view unit) {
  return unit.find(".experts.") != std::string_view::npos && !unit.starts_with("shard.");
}
inline bool is_copy_unit(std::string_view unit) {
  return unit.starts_with("shard.");
}
// The step a unit is of: "L003.experts" or "shard".
inline std::string_view step_of(std::string_view unit) {
  return is_copy_unit(unit) ? kCopyStep : unit.substr(0, unit.rfind('.'));
}

}  // namespace trefoil
