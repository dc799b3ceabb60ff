#include "quantize/output_check.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/folder_files.h"
#include "checkpoint/quantization_config.h"

namespace trefoil {
namespace {

void check_header(const SafetensorsHeader& header, const ShardPlan& plan) {
  if (header.tensors.size() != plan.tensors.size()) {
    fail(ErrorCode::kCorrupt, "{}: {} tensors written, {} planned", plan.file, header.tensors.size(),
         plan.tensors.size());
  }
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorPlan& planned = plan.tensors[i].plan;
    const TensorInfo& found = header.tensors[i];
    if (found.name != planned.name || found.dtype != planned.dtype || found.shape != planned.shape) {
      fail(ErrorCode::kCorrupt, "{}: tensor {} is {} {} {}, planned {} {} {}", plan.file, i, found.name,
           to_string(found.dtype), to_string(found.shape), planned.name, to_string(planned.dtype),
           to_string(planned.shape));
    }
  }
}

void check_linear(const Checkpoint& output, const StoredLinear& source, const ExpertEncoding& encoding) {
  const StoredLinear found = resolve_linear(output, source.module, encoding.num_bits);
  const int64_t words = packed_words(encoding.num_bits, source.in_features, encoding.layout);
  const bool as_planned = found.format == LinearFormat::kPackedInt && found.out_features == source.out_features &&
                          found.in_features == source.in_features && found.group_size == encoding.group_size &&
                          found.num_bits == encoding.num_bits && found.packed->info.shape.back() == words;
  if (!as_planned) {
    fail(ErrorCode::kCorrupt,
         "{}: reads back as {} {} bits group {} [{}, {}], planned int{} group {} [{}, {}] in {} words", source.module,
         to_string(found.format), found.num_bits, found.group_size, found.out_features, found.in_features,
         encoding.num_bits, encoding.group_size, source.out_features, source.in_features, words);
  }
}

void check_config(const fs::path& folder, const ExpertEncoding& encoding) {
  const fs::path file = folder / kConfigFile;
  const QuantizationConfigs configs = parse_quantization_configs(read_text_file(file), file.string());
  if (!configs.top || configs.nested)
    fail(ErrorCode::kCorrupt, "{}: must hold one quantization_config, at the top level", file.string());
  if (configs.top->groups.size() != 1 || configs.top->groups.front().num_bits != encoding.num_bits ||
      configs.top->groups.front().group_size != encoding.group_size) {
    fail(ErrorCode::kCorrupt, "{}: quantization_config does not say int{} group {}", file.string(), encoding.num_bits,
         encoding.group_size);
  }
}

}  // namespace

void check_output(const fs::path& folder, const std::vector<ShardPlan>& plans, const std::vector<MoeLayer>& layers,
                  const ExpertEncoding& encoding) {
  const Checkpoint output = Checkpoint::open(folder);
  for (const ShardPlan& plan : plans) {
    const auto at = std::find(output.shards().begin(), output.shards().end(), plan.file);
    if (at == output.shards().end()) fail(ErrorCode::kCorrupt, "{}: not in the index", plan.file);
    check_header(output.header(static_cast<uint32_t>(at - output.shards().begin())), plan);
  }
  for (const MoeLayer& layer : layers) {
    for (const RoutedExpert& expert : layer.experts) {
      for (const StoredLinear& linear : expert.linear) check_linear(output, linear, encoding);
    }
  }
  check_config(folder, encoding);
}

void check_shards(const fs::path& folder, const std::vector<ShardPlan>& plans) {
  for (const ShardPlan& plan : plans) check_header(read_safetensors_header(InputFile(folder / plan.file)), plan);
}

}  // namespace trefoil
