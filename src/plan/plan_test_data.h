// Folders that hold a config and an index and no shard, for tests of inspect and plan.
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/quantization_config.h"
#include "checkpoint/tensor_inventory.h"
#include "support/test_support.h"

namespace trefoil::testing {

using EditJson = std::function<void(nlohmann::ordered_json&)>;

inline void edit_json_file(const fs::path& file, const EditJson& edit) {
  auto json = nlohmann::ordered_json::parse(read_text(file));
  edit(json);
  write_text(file, json.dump());
}

// The small model's config and index, its shards left behind.
inline void copy_tiny_without_shards(const fs::path& folder) {
  for (const char* name : {"config.json", "model.safetensors.index.json"})
    fs::copy_file(tiny_k3_dir() / name, folder / name);
}

// The small model as it would be after quantization to `spec`: a written config, and the index of all its tensors.
inline void write_quantized_tiny(const fs::path& folder, const PackQuantizedSpec& spec) {
  const std::string source = read_text(tiny_k3_dir() / "config.json");
  write_text(folder / "config.json", write_quantized_config(source, spec, "config.json"));
  const ExpertStorage experts{LinearFormat::kPackedInt, spec.num_bits, spec.group_size, spec.layout};
  const TensorInventory inventory(parse_model_config(source, "config.json"), parse_vision_config(source, "config.json"),
                                  experts, "language_model.");
  nlohmann::ordered_json index;
  uint64_t total = 0;
  inventory.for_each_expected([&](const std::string& name, const TensorIdentity& identity) {
    index["weight_map"][name] = "model-00001-of-000001.safetensors";
    total += identity.expected->bytes;
  });
  index["metadata"]["total_size"] = total;
  write_text(folder / "model.safetensors.index.json", index.dump());
}

}  // namespace trefoil::testing
