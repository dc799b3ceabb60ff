// Which files describe a checkpoint. Part of the public interface.
#pragma once

#include <filesystem>

namespace trefoil {

// A folder with config.json and either model.safetensors.index.json (or .index.json.gz) or one model.safetensors. The
// shards themselves may be absent where a function says so.
struct ModelFiles {
  std::filesystem::path folder;
  std::filesystem::path config;  // when set, read instead of folder/config.json
  std::filesystem::path index;   // likewise of the index, which may be .gz or .zst; shards lie beside it
};

}  // namespace trefoil
