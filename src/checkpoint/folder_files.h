// What lies in a checkpoint folder beside the shards: the files with fixed names, and the side files.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/file.h"

namespace trefoil {

inline constexpr const char* kConfigFile = "config.json";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";
inline constexpr const char* kSingleShard = "model.safetensors";  // of a checkpoint without an index
inline constexpr const char* kSumsFile = "SHA256SUMS";
inline constexpr const char* kReportFile = "quantization_report.json";  // of quantize
inline constexpr const char* kReportPage = "quantization_report.html";

// Every regular file but *.safetensors and the index, in sub-folders too, hidden folders (.git, .cache) left out. Links
// to files count as files. Relative paths, sorted. Error(kIo) when a folder cannot be listed.
std::vector<std::string> side_files_of(const fs::path& folder);

}  // namespace trefoil
