#include "eval/verify_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "checkpoint/folder_files.h"
#include "checkpoint/json_object.h"
#include "eval/verify_check.h"
#include "eval/verify_steps.h"

namespace trefoil {
namespace {

constexpr uint64_t kPiece = 4ull << 20;

// Files that say what was done, so they differ from the source's by right.
constexpr std::array<std::string_view, 7> kWrittenAnew = {"MODEL_CARD.md", kSumsFile,     kConfigFile,  kReportPage,
                                                          kReportFile,     "recipe.yaml", "recode.json"};

bool is_written_anew(std::string_view file) {
  return std::find(kWrittenAnew.begin(), kWrittenAnew.end(), file) != kWrittenAnew.end();
}

// The first byte at which two equally long readers differ; nothing when they do not.
template <typename ReadA, typename ReadB>
std::optional<uint64_t> first_difference(uint64_t size, const ReadA& read_a, const ReadB& read_b) {
  std::vector<std::byte> a(static_cast<size_t>(std::min(size, kPiece)));
  std::vector<std::byte> b(a.size());
  for (uint64_t offset = 0; offset < size; offset += kPiece) {
    const auto piece = static_cast<size_t>(std::min(kPiece, size - offset));
    read_a(offset, MutableBytes(a).first(piece));
    read_b(offset, MutableBytes(b).first(piece));
    const auto differ = std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(piece), b.begin()).first;
    if (differ - a.begin() < static_cast<std::ptrdiff_t>(piece))
      return offset + static_cast<uint64_t>(differ - a.begin());
  }
  return std::nullopt;
}

// What is wrong with the copy of one source tensor; empty when nothing is.
std::string compare_tensor(const FolderScan& scan, const ScannedTensor& tensor, const Checkpoint& source,
                           const TensorRef& original) {
  if (tensor.info->dtype != original.info.dtype || tensor.info->shape != original.info.shape) {
    return fmt::format("{} {}, the source has {} {}", to_string(tensor.info->dtype), to_string(tensor.info->shape),
                       to_string(original.info.dtype), to_string(original.info.shape));
  }
  const auto here = [&](uint64_t offset, MutableBytes out) { scan.read(tensor, offset, out); };
  const auto there = [&](uint64_t offset, MutableBytes out) { source.read(original, offset, out); };
  try {
    const auto differ = first_difference(tensor.info->size(), here, there);
    return differ ? fmt::format("bytes differ from offset {}", *differ) : "";
  } catch (const Error& unreadable) {
    return unreadable.what();
  }
}

std::optional<std::string> compare_files(const fs::path& a, const fs::path& b) {
  const InputFile file_a(a);
  const InputFile file_b(b);
  if (file_a.size() != file_b.size()) return fmt::format("{} bytes, the source has {}", file_a.size(), file_b.size());
  const auto differ = first_difference(
      file_a.size(), [&](uint64_t offset, MutableBytes out) { file_a.read_at(offset, out); },
      [&](uint64_t offset, MutableBytes out) { file_b.read_at(offset, out); });
  return differ ? std::optional(fmt::format("bytes differ from offset {}", *differ)) : std::nullopt;
}

void strip_quantization(nlohmann::json& config) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    config.erase(key);
    if (config.contains("text_config") && config["text_config"].is_object()) config["text_config"].erase(key);
  }
}

nlohmann::json config_without_quantization(const std::string& text, const std::string& file) {
  parse_strict_json(text, file);  // says what is wrong; the plain type below compares without order
  nlohmann::json config = nlohmann::json::parse(text);
  if (!config.is_object()) fail(ErrorCode::kCorrupt, "{}: not an object", file);
  strip_quantization(config);
  return config;
}

void check_config_remainder(const FolderScan& scan, const Checkpoint& source, CheckRecorder& check) {
  if (!scan.config_text()) return;  // check_config() reports it
  try {
    const nlohmann::json here = config_without_quantization(*scan.config_text(), kConfigFile);
    const nlohmann::json there =
        config_without_quantization(read_text_file(source.folder() / kConfigFile), "the source's config.json");
    for (const auto& change : nlohmann::json::diff(there, here)) {
      check.fail(change["path"].get<std::string>(), kConfigFile, "the source's value", change["op"].get<std::string>());
    }
  } catch (const Error& unreadable) {
    check.fail("", kConfigFile, "comparable with the source's", unreadable.what());
  }
}

}  // namespace

VerifyCheck check_unchanged(const FolderScan& scan, const VerifyOptions& options, const ExpertSet& experts,
                            const Checkpoint& source, ThreadPool& pool) {
  CheckRecorder check("unchanged", "every other tensor is the source's, byte for byte, and none was added", "tensors",
                      options.max_findings);
  std::set<std::string_view> modules;
  for (const ExpertLinear& linear : experts.linears) modules.insert(linear.module);
  const auto is_expert = [&](std::string_view name) {
    const auto parts = parse_expert_tensor_name(name);
    return parts && modules.contains(parts->module);
  };

  std::vector<const TensorRef*> originals;
  for (const TensorRef& tensor : source.tensors()) {
    if (!is_expert(tensor.info.name)) originals.push_back(&tensor);
  }
  std::vector<std::string> wrong(originals.size());
  const auto total = static_cast<int64_t>(originals.size());
  VerifySteps steps(options, "verify: unchanged tensors", total);
  pool.parallel_for(total, [&](int64_t i) {
    steps.begin();
    const TensorRef& original = *originals[static_cast<size_t>(i)];
    const ScannedTensor* tensor = scan.find(original.info.name);
    wrong[static_cast<size_t>(i)] = tensor == nullptr ? "missing" : compare_tensor(scan, *tensor, source, original);
    steps.end();
  });
  for (size_t i = 0; i < originals.size(); ++i) {
    const TensorRef& original = *originals[i];
    const std::string& source_shard = source.shards()[original.shard];
    check.count();
    if (!wrong[i].empty()) {
      check.fail(original.info.name, source_shard, "the source's bytes", wrong[i]);
    } else if (const std::string& shard = scan.shard_name(*scan.find(original.info.name)); shard != source_shard) {
      check.warn(original.info.name, shard, "in " + source_shard + " as in the source", "in another shard");
    }
  }
  for (const ScannedTensor& tensor : scan.tensors()) {
    if (!is_expert(tensor.info->name) && source.find(tensor.info->name) == nullptr) {
      check.fail(tensor.info->name, scan.shard_name(tensor), "a tensor of the source", "added");
    }
  }
  return std::move(check).finish();
}

VerifyCheck check_side_files(const FolderScan& scan, const VerifyOptions& options, const Checkpoint& source) {
  CheckRecorder check("side_files", "side files are the source's, and so is config.json but for quantization_config",
                      "files", options.max_findings);
  for (const std::string& file : side_files_of(source.folder())) {
    if (is_written_anew(file)) continue;
    check.count();
    try {
      const auto difference = compare_files(scan.folder() / file, source.folder() / file);
      if (difference) check.fail("", file, "the source's bytes", *difference);
    } catch (const Error& unreadable) {
      check.fail("", file, "the source's bytes", unreadable.what());
    }
  }
  check.count();
  check_config_remainder(scan, source, check);
  return std::move(check).finish();
}

}  // namespace trefoil
