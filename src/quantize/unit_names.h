// What the ledger calls the units of a job.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace trefoil {

// "L003.experts.00064": the experts from 64 on of layer 3; "L003.attend-q.00002": row block 2. Layers sort as numbers.
inline std::string unit_name(int64_t layer, std::string_view step, int64_t index) {
  return fmt::format("L{:03}.{}.{:05}", layer, step, index);
}

inline constexpr std::string_view kExpertStep = "experts";

// "shard.model-00001-of-000008.safetensors": the unchanged tensors of a shard.
inline std::string copy_unit_name(std::string_view shard_file) {
  return fmt::format("shard.{}", shard_file);
}
inline bool is_expert_unit(std::string_view unit) {
  return unit.find(".experts.") != std::string_view::npos && !unit.starts_with("shard.");
}
inline bool is_copy_unit(std::string_view unit) {
  return unit.starts_with("shard.");
}

}  // namespace trefoil
