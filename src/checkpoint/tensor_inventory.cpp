#include "checkpoint/tensor_inventory.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace trefoil {
namespace {

constexpr std::string_view kReleasePrefix = "language_model.";
constexpr std::string_view kLayers = "model.layers.";
constexpr std::string_view kExperts = "block_sparse_moe.experts.";
constexpr std::string_view kVisionBlocks = "vision_tower.encoder.blocks.";

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

// Takes "17." off the front. Only canonical numbers: no sign, no leading zero.
bool take_number(std::string_view& text, int64_t* number) {
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos || dot == 0 || (text[0] == '0' && dot > 1) || text[0] == '-') return false;
  const auto [end, error] = std::from_chars(text.data(), text.data() + dot, *number);
  if (error != std::errc() || end != text.data() + dot) return false;
  text.remove_prefix(dot + 1);
  return true;
}

uint64_t bytes_of(const Shape& shape, DType dtype) {
  uint64_t bytes = 0;
  if (!byte_size_of(shape, dtype, &bytes)) {
    fail(ErrorCode::kUnsupported, "a tensor of shape {} is larger than memory can address", to_string(shape));
  }
  return bytes;
}

uint64_t count_of(const Shape& shape) {
  return bytes_of(shape, DType::kU8);
}

ExpectedTensor expected_of(Component component, DType dtype, Shape shape) {
  ExpectedTensor expected;
  expected.component = component;
  expected.dtype = dtype;
  expected.parameters = count_of(shape);
  expected.bytes = bytes_of(shape, dtype);
  expected.shape = std::move(shape);
  return expected;
}

Component component_of_part(std::string_view suffix) {
  if (suffix.ends_with("scale")) return Component::kRoutedScales;
  if (suffix.ends_with("shape")) return Component::kRoutedShapes;
  return Component::kRoutedPacked;
}

}  // namespace

const char* to_string(Component component) {
  switch (component) {
    case Component::kRoutedPacked:
      return "routed experts, packed";
    case Component::kRoutedScales:
      return "routed experts, scales";
    case Component::kRoutedShapes:
      return "routed experts, shapes";
    case Component::kKda:
      return "KDA attention";
    case Component::kSharedExperts:
      return "shared experts";
    case Component::kMla:
      return "MLA attention";
    case Component::kLatentProjections:
      return "latent down/up projections";
    case Component::kEmbedTokens:
      return "embed_tokens";
    case Component::kLmHead:
      return "lm_head";
    case Component::kDenseMlp:
      return "dense MLP";
    case Component::kRouter:
      return "router weight + bias";
    case Component::kNorms:
      return "norms + AttnRes vectors";
    case Component::kVisionTower:
      return "vision tower";
    case Component::kProjector:
      return "projector";
  }
  return "unknown";
}

std::vector<LinearPart> linear_parts(const ExpertStorage& storage, int64_t out_features, int64_t in_features) {
  if (storage.format == LinearFormat::kPlain) return {{".weight", DType::kBF16, {out_features, in_features}}};
  if (storage.group_size < 1 || in_features % storage.group_size != 0) {
    fail(ErrorCode::kInvalidArgument, "{} inputs are no multiple of group size {}", in_features, storage.group_size);
  }
  const int64_t groups = in_features / storage.group_size;
  if (storage.format == LinearFormat::kMxfp4) {
    return {{".weight_packed", DType::kU8, {out_features, in_features / 2}},
            {".weight_scale", DType::kU8, {out_features, groups}}};
  }
  const int bits = storage.num_bits;
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8) {
    fail(ErrorCode::kInvalidArgument, "packed integers of {} bits; 2, 3, 4 and 8 are known", bits);
  }
  return {{".weight_packed", DType::kI32, {out_features, packed_words(bits, in_features, storage.layout)}},
          {".weight_scale", DType::kBF16, {out_features, groups}},
          {".weight_shape", DType::kI64, {2}}};
}

uint64_t linear_bytes(const ExpertStorage& storage, int64_t out_features, int64_t in_features) {
  uint64_t bytes = 0;
  for (const LinearPart& part : linear_parts(storage, out_features, in_features)) {
    bytes += bytes_of(part.shape, part.dtype);
  }
  return bytes;
}

bool ExpectedTensor::matches(DType found_dtype, const Shape& found_shape) const {
  if (found_dtype != dtype || found_shape.size() != shape.size()) return false;
  if (least_rows > 0) {
    return found_shape[0] >= least_rows && std::equal(shape.begin() + 1, shape.end(), found_shape.begin() + 1);
  }
  return found_shape == shape;
}

// --- the table ---

// Short names for the config's dimensions, as the shapes below use them.
struct TensorInventory::Dims {
  Dims(const ModelConfig& config, const VisionConfig& vision)
      : c(config),
        v(vision),
        hidden(config.hidden_size),
        kda(config.kda_num_heads * config.kda_head_dim),
        mla(config.num_attention_heads * config.v_head_dim),
        qk_head(config.qk_nope_head_dim + config.qk_rope_head_dim),
        shared(config.num_shared_experts * config.moe_intermediate_size) {
    if (vision.merge_kernel_size.size() == 2) {
      merged = vision.mm_hidden_size * vision.merge_kernel_size[0] * vision.merge_kernel_size[1];
    }
  }

  const ModelConfig& c;
  const VisionConfig& v;
  int64_t hidden;
  int64_t kda;         // width of q, k, v in KDA
  int64_t mla;         // width of the attention output in MLA
  int64_t qk_head;     // one MLA query/key head
  int64_t shared;      // all shared experts are one MLP
  int64_t merged = 0;  // the projector's input: one merged group of patches
};

struct TensorInventory::Row {
  std::string_view suffix;
  Place place;
  Component component;
  DType dtype;
  Shape (*shape)(const Dims& d);
};

// clang-format off
const TensorInventory::Row TensorInventory::kRows[] = {
    {"model.embed_tokens.weight",         Place::kModel, Component::kEmbedTokens, DType::kBF16, [](const Dims& d) { return Shape{d.c.vocab_size, d.hidden}; }},
    {"model.norm.weight",                 Place::kModel, Component::kNorms,  DType::kBF16, [](const Dims& d) { return Shape{d.hidden}; }},
    {"model.output_attn_res_norm.weight", Place::kModel, Component::kNorms,  DType::kBF16, [](const Dims& d) { return Shape{d.hidden}; }},
    {"model.output_attn_res_proj.weight", Place::kModel, Component::kNorms,  DType::kBF16, [](const Dims& d) { return Shape{1, d.hidden}; }},
    {"lm_head.weight",                    Place::kModel, Component::kLmHead, DType::kBF16, [](const Dims& d) { return Shape{d.c.vocab_size, d.hidden}; }},

    {"input_layernorm.weight",            Place::kLayer, Component::kNorms, DType::kBF16, [](const Dims& d) { return Shape{d.hidden}; }},
    {"post_attention_layernorm.weight",   Place::kLayer, Component::kNorms, DType::kBF16, [](const Dims& d) { return Shape{d.hidden}; }},
    {"self_attention_res_norm.weight",    Place::kLayer, Component::kNorms, DType::kBF16, [](const Dims& d) { return Shape{d.hidden}; }},
    {"self_attention_res_proj.weight",    Place::kLayer, Component::kNorms, DType::kBF16, [](const Dims& d) { return Shape{1, d.hidden}; }},
    {"mlp_res_norm.weight",               Place::kLayer, Component::kNorms, DType::kBF16, [](const Dims& d) { return Shape{d.hidden}; }},
    {"mlp_res_proj.weight",               Place::kLayer, Component::kNorms, DType::kBF16, [](const Dims& d) { return Shape{1, d.hidden}; }},

    {"self_attn.q_proj.weight",   Place::kKdaLayer, Component::kKda, DType::kBF16, [](const Dims& d) { return Shape{d.kda, d.hidden}; }},
    {"self_attn.k_proj.weight",   Place::kKdaLayer, Component::kKda, DType::kBF16, [](const Dims& d) { return Shape{d.kda, d.hidden}; }},
    {"self_attn.v_proj.weight",   Place::kKdaLayer, Component::kKda, DType::kBF16, [](const Dims& d) { return Shape{d.kda, d.hidden}; }},
    {"self_attn.q_conv1d.weight", Place::kKdaLayer, Component::kKda, DType::kF32,  [](const Dims& d) { return Shape{d.kda, 1, d.c.short_conv_kernel_size}; }},
    {"self_attn.k_conv1d.weight", Place::kKdaLayer, Component::kKda, DType::kF32,  [](const Dims& d) { return Shape{d.kda, 1, d.c.short_conv_kernel_size}; }},
    {"self_attn.v_conv1d.weight", Place::kKdaLayer, Component::kKda, DType::kF32,  [](const Dims& d) { return Shape{d.kda, 1, d.c.short_conv_kernel_size}; }},
    {"self_attn.f_a_proj.weight", Place::kKdaLayer, Component::kKda, DType::kBF16, [](const Dims& d) { return Shape{d.c.kda_head_dim, d.hidden}; }},
    {"self_attn.f_b_proj.weight", Place::kKdaLayer, Component::kKda, DType::kBF16, [](const Dims& d) { return Shape{d.kda, d.c.kda_head_dim}; }},
    {"self_attn.b_proj.weight",   Place::kKdaLayer, Component::kKda, DType::kBF16, [](const Dims& d) { return Shape{d.c.kda_num_heads, d.hidden}; }},
    {"self_attn.A_log",           Place::kKdaLayer, Component::kKda, DType::kF32,  [](const Dims& d) { return Shape{std::max(d.c.kda_num_heads, d.c.kda_head_dim)}; }},
    {"self_attn.dt_bias",         Place::kKdaLayer, Component::kKda, DType::kF32,  [](const Dims& d) { return Shape{d.kda}; }},
    {"self_attn.o_norm.weight",   Place::kKdaLayer, Component::kKda, DType::kF32,  [](const Dims& d) { return Shape{d.c.kda_head_dim}; }},
    {"self_attn.g_proj.weight",   Place::kKdaLayer, Component::kKda, DType::kBF16, [](const Dims& d) { return Shape{d.kda, d.hidden}; }},
    {"self_attn.o_proj.weight",   Place::kKdaLayer, Component::kKda, DType::kBF16, [](const Dims& d) { return Shape{d.hidden, d.kda}; }},

    {"self_attn.q_a_proj.weight",           Place::kMlaLayer, Component::kMla, DType::kBF16, [](const Dims& d) { return Shape{d.c.q_lora_rank, d.hidden}; }},
    {"self_attn.q_a_layernorm.weight",      Place::kMlaLayer, Component::kMla, DType::kBF16, [](const Dims& d) { return Shape{d.c.q_lora_rank}; }},
    {"self_attn.q_b_proj.weight",           Place::kMlaLayer, Component::kMla, DType::kBF16, [](const Dims& d) { return Shape{d.c.num_attention_heads * d.qk_head, d.c.q_lora_rank}; }},
    {"self_attn.kv_a_proj_with_mqa.weight", Place::kMlaLayer, Component::kMla, DType::kBF16, [](const Dims& d) { return Shape{d.c.kv_lora_rank + d.c.qk_rope_head_dim, d.hidden}; }},
    {"self_attn.kv_a_layernorm.weight",     Place::kMlaLayer, Component::kMla, DType::kBF16, [](const Dims& d) { return Shape{d.c.kv_lora_rank}; }},
    {"self_attn.kv_b_proj.weight",          Place::kMlaLayer, Component::kMla, DType::kBF16, [](const Dims& d) { return Shape{d.c.num_attention_heads * (d.c.qk_nope_head_dim + d.c.v_head_dim), d.c.kv_lora_rank}; }},
    {"self_attn.g_proj.weight",             Place::kMlaLayer, Component::kMla, DType::kBF16, [](const Dims& d) { return Shape{d.mla, d.hidden}; }},
    {"self_attn.o_proj.weight",             Place::kMlaLayer, Component::kMla, DType::kBF16, [](const Dims& d) { return Shape{d.hidden, d.mla}; }},

    {"mlp.gate_proj.weight", Place::kDenseLayer, Component::kDenseMlp, DType::kBF16, [](const Dims& d) { return Shape{d.c.intermediate_size, d.hidden}; }},
    {"mlp.up_proj.weight",   Place::kDenseLayer, Component::kDenseMlp, DType::kBF16, [](const Dims& d) { return Shape{d.c.intermediate_size, d.hidden}; }},
    {"mlp.down_proj.weight", Place::kDenseLayer, Component::kDenseMlp, DType::kBF16, [](const Dims& d) { return Shape{d.hidden, d.c.intermediate_size}; }},

    {"block_sparse_moe.gate.weight",                     Place::kMoeLayer, Component::kRouter, DType::kBF16, [](const Dims& d) { return Shape{d.c.num_experts, d.hidden}; }},
    {"block_sparse_moe.gate.e_score_correction_bias",    Place::kMoeLayer, Component::kRouter, DType::kF32,  [](const Dims& d) { return Shape{d.c.num_experts}; }},
    {"block_sparse_moe.routed_expert_down_proj.weight",  Place::kMoeLayer, Component::kLatentProjections, DType::kBF16, [](const Dims& d) { return Shape{d.c.routed_expert_hidden_size, d.hidden}; }},
    {"block_sparse_moe.routed_expert_up_proj.weight",    Place::kMoeLayer, Component::kLatentProjections, DType::kBF16, [](const Dims& d) { return Shape{d.hidden, d.c.routed_expert_hidden_size}; }},
    {"block_sparse_moe.routed_expert_norm.weight",       Place::kMoeLayer, Component::kNorms, DType::kBF16, [](const Dims& d) { return Shape{d.c.routed_expert_hidden_size}; }},
    {"block_sparse_moe.shared_experts.gate_proj.weight", Place::kMoeLayer, Component::kSharedExperts, DType::kBF16, [](const Dims& d) { return Shape{d.shared, d.hidden}; }},
    {"block_sparse_moe.shared_experts.up_proj.weight",   Place::kMoeLayer, Component::kSharedExperts, DType::kBF16, [](const Dims& d) { return Shape{d.shared, d.hidden}; }},
    {"block_sparse_moe.shared_experts.down_proj.weight", Place::kMoeLayer, Component::kSharedExperts, DType::kBF16, [](const Dims& d) { return Shape{d.hidden, d.shared}; }},

    {"vision_tower.patch_embed.proj.weight",        Place::kVision, Component::kVisionTower, DType::kBF16, [](const Dims& d) { return Shape{d.v.vt_hidden_size, 3, d.v.patch_size, d.v.patch_size}; }},
    {"vision_tower.patch_embed.pos_emb.weight",     Place::kVision, Component::kVisionTower, DType::kBF16, [](const Dims& d) { return Shape{d.v.init_pos_emb_height, d.v.init_pos_emb_width, d.v.vt_hidden_size}; }},
    {"vision_tower.encoder.final_layernorm.weight", Place::kVision, Component::kVisionTower, DType::kBF16, [](const Dims& d) { return Shape{d.v.vt_hidden_size}; }},
    {"mm_projector.proj.0.weight",                  Place::kVision, Component::kProjector,   DType::kBF16, [](const Dims& d) { return Shape{d.merged, d.merged}; }},
    {"mm_projector.proj.2.weight",                  Place::kVision, Component::kProjector,   DType::kBF16, [](const Dims& d) { return Shape{d.v.text_hidden_size, d.merged}; }},
    {"mm_projector.post_norm.weight",               Place::kVision, Component::kProjector,   DType::kBF16, [](const Dims& d) { return Shape{d.v.text_hidden_size}; }},

    {"norm0.weight",   Place::kVisionBlock, Component::kVisionTower, DType::kBF16, [](const Dims& d) { return Shape{d.v.vt_hidden_size}; }},
    {"norm1.weight",   Place::kVisionBlock, Component::kVisionTower, DType::kBF16, [](const Dims& d) { return Shape{d.v.vt_hidden_size}; }},
    {"wqkv.weight",    Place::kVisionBlock, Component::kVisionTower, DType::kBF16, [](const Dims& d) { return Shape{3 * d.v.qkv_hidden_size, d.v.vt_hidden_size}; }},
    {"wo.weight",      Place::kVisionBlock, Component::kVisionTower, DType::kBF16, [](const Dims& d) { return Shape{d.v.vt_hidden_size, d.v.qkv_hidden_size}; }},
    {"mlp.fc0.weight", Place::kVisionBlock, Component::kVisionTower, DType::kBF16, [](const Dims& d) { return Shape{d.v.vt_intermediate_size, d.v.vt_hidden_size}; }},
    {"mlp.fc1.weight", Place::kVisionBlock, Component::kVisionTower, DType::kBF16, [](const Dims& d) { return Shape{d.v.vt_hidden_size, d.v.vt_intermediate_size}; }},
};
// clang-format on

TensorInventory::TensorInventory(const ModelConfig& config, const std::optional<VisionConfig>& vision,
                                 const ExpertStorage& experts, std::string text_prefix)
    : config_(config), experts_(experts), text_prefix_(std::move(text_prefix)) {
  const VisionConfig no_vision;
  const Dims dims(config_, vision.has_value() ? *vision : no_vision);
  vision_blocks_ = vision.has_value() ? vision->vt_num_hidden_layers : 0;
  for (const Row& row : kRows) {
    const bool absent = !is_text(row.component) && !vision.has_value();
    if (absent) continue;
    Family family{std::string(row.suffix), row.place, expected_of(row.component, row.dtype, row.shape(dims))};
    if (row.suffix == "self_attn.A_log") family.expected.least_rows = config_.kda_num_heads;
    families_.push_back(std::move(family));
  }
  add_expert_families();
  for (size_t i = 0; i < families_.size(); ++i) {
    by_suffix_[static_cast<size_t>(families_[i].place)].emplace(families_[i].suffix, i);
  }
}

void TensorInventory::add_expert_families() {
  const int64_t inner = config_.moe_intermediate_size;
  const int64_t latent = config_.routed_expert_hidden_size;
  const std::pair<std::string_view, Shape> linears[] = {
      {"w1", {inner, latent}}, {"w2", {latent, inner}}, {"w3", {inner, latent}}};
  for (const auto& [name, shape] : linears) {
    for (const LinearPart& part : linear_parts(experts_, shape[0], shape[1])) {
      const Component component = component_of_part(part.suffix);
      Family family{fmt::format("{}{}", name, part.suffix), Place::kExpert,
                    expected_of(component, part.dtype, part.shape)};
      family.expected.parameters = component == Component::kRoutedPacked ? count_of(shape) : 0;
      families_.push_back(std::move(family));
    }
  }
}

bool TensorInventory::has_place(Place place, int64_t layer) const {
  if (layer < 0 || layer >= config_.num_hidden_layers) return false;
  switch (place) {
    case Place::kLayer:
      return true;
    case Place::kKdaLayer:
      return config_.is_kda(layer);
    case Place::kMlaLayer:
      return !config_.is_kda(layer);
    case Place::kDenseLayer:
      return !config_.is_moe(layer);
    case Place::kMoeLayer:
    case Place::kExpert:
      return config_.is_moe(layer);
    default:
      return false;
  }
}

const TensorInventory::Family* TensorInventory::find(Place place, std::string_view suffix) const {
  const auto& families = by_suffix_[static_cast<size_t>(place)];
  const auto found = families.find(suffix);
  return found == families.end() ? nullptr : &families_[found->second];
}

// --- name -> identity ---

namespace {

// "q_proj.weight_packed" -> "q_proj.weight": a family stored in a way the release does not store it.
std::optional<std::string> plain_name_of(std::string_view suffix) {
  for (const std::string_view part : {"_packed", "_scale", "_shape", "_zero_point", "_g_idx"}) {
    if (suffix.ends_with(part) && suffix.substr(0, suffix.size() - part.size()).ends_with(".weight")) {
      return std::string(suffix.substr(0, suffix.size() - part.size()));
    }
  }
  return std::nullopt;
}

}  // namespace

void TensorInventory::identify_expert(std::string_view rest, TensorIdentity identity,
                                      std::optional<TensorIdentity>& found) const {
  if (!take_number(rest, &identity.expert)) return;
  const Family* family = find(Place::kExpert, rest);
  const bool is_linear =
      rest.starts_with("w1.weight") || rest.starts_with("w2.weight") || rest.starts_with("w3.weight");
  if (family == nullptr && !is_linear) return;
  identity.component = component_of_part(rest);
  if (family != nullptr && has_place(Place::kExpert, identity.layer) && identity.expert < config_.num_experts) {
    identity.expected = &family->expected;
  }
  found = identity;
}

void TensorInventory::identify_in_layer(std::string_view rest, std::optional<TensorIdentity>& found) const {
  TensorIdentity identity;
  if (!take_number(rest, &identity.layer)) return;
  if (take_prefix(rest, kExperts)) return identify_expert(rest, identity, found);
  for (const Place place : {Place::kLayer, Place::kKdaLayer, Place::kMlaLayer, Place::kDenseLayer, Place::kMoeLayer}) {
    const Family* family = find(place, rest);
    if (family == nullptr) continue;
    identity.component = family->expected.component;
    identity.expected = has_place(place, identity.layer) ? &family->expected : nullptr;
    found = identity;
    if (identity.expected != nullptr) return;
  }
}

std::optional<TensorIdentity> TensorInventory::identify(std::string_view name) const {
  std::optional<TensorIdentity> found;
  std::string_view rest = name;
  if (take_prefix(rest, kVisionBlocks)) {
    TensorIdentity identity;
    if (!take_number(rest, &identity.block)) return std::nullopt;
    if (const Family* family = find(Place::kVisionBlock, rest)) {
      identity.component = family->expected.component;
      identity.expected = identity.block < vision_blocks_ ? &family->expected : nullptr;
      found = identity;
    }
  } else if (const Family* family = find(Place::kVision, name)) {
    found = TensorIdentity{.component = family->expected.component, .expected = &family->expected};
  } else if (take_prefix(rest, text_prefix_)) {
    if (const Family* model_family = find(Place::kModel, rest)) {
      found = TensorIdentity{.component = model_family->expected.component, .expected = &model_family->expected};
    } else if (take_prefix(rest, kLayers)) {
      identify_in_layer(rest, found);
    }
  }
  if (found.has_value()) return found;
  const std::optional<std::string> plain = plain_name_of(name);
  if (!plain.has_value()) return std::nullopt;
  found = identify(*plain);
  if (found.has_value()) found->expected = nullptr;
  return found;
}

// --- what the config demands ---

int64_t TensorInventory::num_expected_outside_layers() const {
  const auto of = [&](Place place) { return static_cast<int64_t>(by_suffix_[static_cast<size_t>(place)].size()); };
  return of(Place::kModel) + of(Place::kVision) + of(Place::kVisionBlock) * vision_blocks_;
}

int64_t TensorInventory::num_expected_in_layer(int64_t layer) const {
  int64_t count = 0;
  for (const Family& family : families_) {
    if (has_place(family.place, layer)) count += family.place == Place::kExpert ? config_.num_experts : 1;
  }
  return count;
}

int64_t TensorInventory::num_expected() const {
  int64_t count = num_expected_outside_layers();
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) count += num_expected_in_layer(layer);
  return count;
}

void TensorInventory::visit_layer(int64_t layer, const Visitor& visit) const {
  const std::string prefix = fmt::format("{}{}{}.", text_prefix_, kLayers, layer);
  for (const Family& family : families_) {
    if (!has_place(family.place, layer) || family.place == Place::kExpert) continue;
    visit(prefix + family.suffix,
          {.component = family.expected.component, .layer = layer, .expected = &family.expected});
  }
  if (!config_.is_moe(layer)) return;
  for (int64_t expert = 0; expert < config_.num_experts; ++expert) {
    const std::string expert_prefix = fmt::format("{}{}{}.", prefix, kExperts, expert);
    for (const auto& [suffix, index] : by_suffix_[static_cast<size_t>(Place::kExpert)]) {
      const ExpectedTensor& expected = families_[index].expected;
      visit(expert_prefix + suffix,
            {.component = expected.component, .layer = layer, .expert = expert, .expected = &expected});
    }
  }
}

void TensorInventory::for_each_expected(const Visitor& visit) const {
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) visit_layer(layer, visit);
  for (const Family& family : families_) {
    const ExpectedTensor& expected = family.expected;
    if (family.place == Place::kModel || family.place == Place::kVision) {
      const std::string prefix = family.place == Place::kModel ? text_prefix_ : "";
      visit(prefix + family.suffix, {.component = expected.component, .expected = &expected});
    }
    if (family.place != Place::kVisionBlock) continue;
    for (int64_t block = 0; block < vision_blocks_; ++block) {
      visit(fmt::format("{}{}.{}", kVisionBlocks, block, family.suffix),
            {.component = expected.component, .block = block, .expected = &expected});
    }
  }
}

namespace {

template <typename Names, typename NameOf>
std::string prefix_in(const Names& sorted, const NameOf& name_of) {
  const auto first = std::lower_bound(sorted.begin(), sorted.end(), kReleasePrefix,
                                      [&](const auto& item, std::string_view key) { return name_of(item) < key; });
  const bool found = first != sorted.end() && std::string_view(name_of(*first)).starts_with(kReleasePrefix);
  return found ? std::string(kReleasePrefix) : "";
}

}  // namespace

std::string text_prefix_of(const CheckpointIndex& index) {
  return prefix_in(index.entries, [](const CheckpointIndex::Entry& entry) -> const std::string& { return entry.name; });
}

std::string text_prefix_of(const Checkpoint& checkpoint) {
  return prefix_in(checkpoint.tensors(),
                   [](const TensorRef& tensor) -> const std::string& { return tensor.info.name; });
}

}  // namespace trefoil
