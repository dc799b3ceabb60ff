#include "quantize/recode_plan.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "checkpoint/folder_files.h"
#include "checkpoint/tensor_order.h"
#include "quantize/shard_plan.h"

namespace trefoil {
namespace {

constexpr std::string_view kPacked = ".weight_packed";

const QuantizationConfig& config_of(const QuantizationConfigs& configs, const fs::path& folder) {
  if (configs.top && configs.nested) {
    fail(ErrorCode::kCorrupt, "{}: config.json has two quantization_configs", folder.string());
  }
  if (!configs.top && !configs.nested) {
    fail(ErrorCode::kCorrupt, "{}: config.json has no quantization_config", folder.string());
  }
  return configs.top ? *configs.top : *configs.nested;
}

PackedForm form_of(const StoredLinear& linear) {
  if (linear.format != LinearFormat::kPackedInt) {
    fail(ErrorCode::kUnsupported, "{}: is {}; recode works on packed integers, made by quantize", linear.module,
         to_string(linear.format));
  }
  if (linear.num_bits == 4) return PackedForm::kW4;
  if (linear.num_bits == 3) return linear.layout == PackedLayout::kDense ? PackedForm::kW3Dense : PackedForm::kW3Padded;
  fail(ErrorCode::kUnsupported, "{}: {} bits; recode knows 3 and 4", linear.module, linear.num_bits);
}

// The Linears' common form; one that differs is an Error, because a config can only describe one.
PackedForm common_form(const RecodePlan& plan) {
  const StoredLinear& first = *plan.linears.front();
  const PackedForm form = form_of(first);
  for (const auto& linear : plan.linears) {
    if (form_of(*linear) != form || linear->group_size != first.group_size) {
      fail(ErrorCode::kCorrupt, "{} is {} group {}, {} is {} group {}: a checkpoint has one form", first.module,
           to_string(form), first.group_size, linear->module, to_string(form_of(*linear)), linear->group_size);
    }
  }
  return form;
}

void find_linears(const Checkpoint& input, const QuantizationGroup& group, RecodePlan& plan) {
  const bool is_packed_int = group.format == "pack-quantized";
  for (const TensorRef& tensor : input.tensors()) {
    if (!tensor.info.name.ends_with(kPacked)) continue;
    const std::string module = tensor.info.name.substr(0, tensor.info.name.size() - kPacked.size());
    plan.linears.push_back(
        std::make_unique<StoredLinear>(resolve_linear(input, module, is_packed_int ? group.num_bits : 0)));
    plan.packed[tensor.info.name] = plan.linears.back().get();
  }
  if (plan.linears.empty()) fail(ErrorCode::kUnsupported, "{}: no packed Linear here", input.folder().string());
}

// The written config packs the routed experts and nothing else: it must be true of this checkpoint.
void check_config_is_true(const std::string& config_json, const RecodePlan& plan) {
  const QuantizationConfigs written =
      parse_quantization_configs(write_quantized_config(config_json, plan.spec, kConfigFile), kConfigFile);
  const LinearMatcher matcher(*written.top);
  for (const auto& linear : plan.linears) {
    if (!matcher.match_index(linear->module)) {
      fail(ErrorCode::kUnsupported, "{}: packed, but only routed experts may be: the config written here ignores it",
           linear->module);
    }
  }
}

void plan_shard(const Checkpoint& input, uint32_t shard, RecodePlan& plan) {
  const SafetensorsHeader& header = input.header(shard);
  RecodeShard result{input.shards()[shard], {}, header.metadata};
  std::vector<TensorPlan>& tensors = result.tensors;
  for (const TensorInfo& tensor : header.tensors) tensors.push_back({tensor.name, tensor.dtype, tensor.shape});
  if (plan.restores_origin() && plan.origin.package_order) {
    sort_into_package_order(tensors);
  } else if (plan.to != PackedForm::kW3Padded) {
    make_experts_contiguous(tensors);
  }
  for (TensorPlan& tensor : tensors) {
    if (const auto found = plan.packed.find(tensor.name); found != plan.packed.end()) {
      tensor.shape[1] = packed_words(plan.spec.num_bits, found->second->in_features, plan.spec.layout);
    }
    uint64_t bytes = 0;
    TREFOIL_CHECK(byte_size_of(tensor.shape, tensor.dtype, &bytes));
    plan.index.entries.push_back({tensor.name, shard});
    plan.index.total_size += bytes;
  }
  plan.shards.push_back(std::move(result));
}

}  // namespace

int num_bits_of(PackedForm form) {
  return form == PackedForm::kW4 ? 4 : 3;
}

PackedLayout layout_of(PackedForm form) {
  return form == PackedForm::kW3Padded ? PackedLayout::kPadded : PackedLayout::kDense;
}

RecodePlan plan_recode(const Checkpoint& input, PackedForm to) {
  const std::string config_json = read_text_file(input.folder() / kConfigFile);
  const QuantizationConfigs configs = parse_quantization_configs(config_json, kConfigFile);
  const QuantizationConfig& config = config_of(configs, input.folder());
  if (config.groups.size() != 1) {
    fail(ErrorCode::kUnsupported, "{}: quantization_config has {} groups, recode knows one", input.folder().string(),
         config.groups.size());
  }
  const QuantizationGroup& group = config.groups[0];

  RecodePlan plan;
  find_linears(input, group, plan);
  plan.from = common_form(plan);
  plan.to = to;
  if (plan.from == to) {
    fail(ErrorCode::kInvalidArgument, "{}: is {} already", input.folder().string(), to_string(to));
  }
  const std::optional<RecodeOrigin> remembered = load_origin(input.folder());
  plan.origin = remembered ? *remembered : describe_origin(input, plan.from, group);
  plan.spec = {num_bits_of(to), plan.linears.front()->group_size, layout_of(to), plan.origin.actorder,
               plan.origin.observer};
  plan.data_alignment = data_alignment(plan.spec.layout);
  check_config_is_true(config_json, plan);

  plan.index.shards = input.shards();
  for (uint32_t shard = 0; shard < input.shards().size(); ++shard) plan_shard(input, shard, plan);
  std::sort(plan.index.entries.begin(), plan.index.entries.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return plan;
}

}  // namespace trefoil
