// Kimi-K3's tensors: one table of every name family with its component, dtype and shape. It answers both ways: what a
// name is, and which names a config demands. Used by inspect and plan (sizes without shards) and by verify.
// docs/formats.md, "Tensor names".
//
// The table says what the release stores; the tensors on disk decide. Nothing here opens a file.
// Immutable after construction; safe to use from several threads.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/linear_storage.h"
#include "checkpoint/model_config.h"
#include "tensor/tensor_view.h"

namespace trefoil {

// In the order in which reports list them.
enum class Component {
  kRoutedPacked,  // weights of the routed experts: packed codes, or plain
  kRoutedScales,  // their scales
  kRoutedShapes,  // their weight_shape (pack-quantized only)
  kKda,           // Kimi Delta Attention, its norm, decay and convolutions
  kSharedExperts,
  kMla,                // latent attention and its two latent norms
  kLatentProjections,  // routed_expert_down_proj, routed_expert_up_proj
  kEmbedTokens,
  kLmHead,
  kDenseMlp,
  kRouter,  // gate weight and correction bias
  kNorms,   // layer norms, routed_expert_norm, AttnRes vectors, final norms
  kVisionTower,
  kProjector,
};
constexpr size_t kNumComponents = 14;
const char* to_string(Component component);  // "routed experts, packed"
constexpr bool is_routed(Component component) {
  return component <= Component::kRoutedShapes;
}
constexpr bool is_text(Component component) {
  return component < Component::kVisionTower;
}

// How the routed experts are stored, for shapes and sizes: the release is {kMxfp4, 4, 32}.
struct ExpertStorage {
  LinearFormat format = LinearFormat::kMxfp4;
  int num_bits = 4;
  int64_t group_size = 32;
  PackedLayout layout = PackedLayout::kDense;  // kPackedInt only
};

// One tensor of a Linear [out_features, in_features] under a storage: ".weight_packed", ".weight_scale", ...
struct LinearPart {
  std::string_view suffix;
  DType dtype = DType::kU8;
  Shape shape;
};
// In the order of the release; weight_shape last. kPlain is BF16. Error(kInvalidArgument) when group_size does not divide
// in_features, or for packed integers of another width than 2, 3, 4 or 8 bits.
std::vector<LinearPart> linear_parts(const ExpertStorage& storage, int64_t out_features, int64_t in_features);
// The sum of their bytes.
uint64_t linear_bytes(const ExpertStorage& storage, int64_t out_features, int64_t in_features);

// What a tensor of the model must look like.
struct ExpectedTensor {
  Component component = Component::kNorms;
  DType dtype = DType::kBF16;
  Shape shape;
  int64_t least_rows = 0;   // when above 0 the first dimension may be anything from this up: A_log holds one entry per
                            // head, then zeros, to the head dimension in the release
  uint64_t bytes = 0;       // of dtype and shape
  uint64_t parameters = 0;  // weights it stands for: of a packed weight its codes, of scales and weight_shape 0

  bool matches(DType found_dtype, const Shape& found_shape) const;
};

// Where in the model a tensor belongs, read from its name alone.
struct TensorIdentity {
  Component component = Component::kNorms;
  int64_t layer = -1;   // 0-based decoder layer; -1 outside the layers
  int64_t expert = -1;  // routed expert; -1 for anything else
  int64_t block = -1;   // vision tower block
  // What the config demands under this name; null when it demands no such tensor (a KDA tensor in an MLA layer, an
  // expert or layer too many, a suffix of another storage).
  const ExpectedTensor* expected = nullptr;
};

class TensorInventory {
 public:
  // `vision` absent: a text-only model. `text_prefix` stands before every text tensor: "language_model." in the
  // release,
  // "" in a checkpoint of the text model alone (see text_prefix_of).
  // Error(kInvalidArgument) when the experts' widths are no multiples of the storage's group size.
  TensorInventory(const ModelConfig& config, const std::optional<VisionConfig>& vision, const ExpertStorage& experts,
                  std::string text_prefix);

  // Nothing for a name that belongs to no family. Numbers in names must be canonical ("layers.03" is unknown), so two
  // names never have the same identity and suffix.
  std::optional<TensorIdentity> identify(std::string_view name) const;

  // The number of tensors the config demands: in all, and outside the layers / in one layer.
  int64_t num_expected() const;
  int64_t num_expected_outside_layers() const;
  int64_t num_expected_in_layer(int64_t layer) const;

  // Calls visit(name, identity) for every tensor the config demands, layer by layer, experts in order of id.
  using Visitor = std::function<void(const std::string& name, const TensorIdentity& identity)>;
  void for_each_expected(const Visitor& visit) const;

  const ExpertStorage& experts() const { return experts_; }
  const std::string& text_prefix() const { return text_prefix_; }

 private:
  // Where a family lives. kLayer families exist in every layer, the next four in some.
  enum class Place { kModel, kLayer, kKdaLayer, kMlaLayer, kDenseLayer, kMoeLayer, kExpert, kVision, kVisionBlock };
  struct Family {
    std::string suffix;  // the name after the place's prefix
    Place place = Place::kModel;
    ExpectedTensor expected;
  };
  struct Dims;
  struct Row;
  static const Row kRows[];

  void add_expert_families();
  bool has_place(Place place, int64_t layer) const;
  const Family* find(Place place, std::string_view suffix) const;
  void identify_in_layer(std::string_view rest, std::optional<TensorIdentity>& found) const;
  void identify_expert(std::string_view rest, TensorIdentity identity, std::optional<TensorIdentity>& found) const;
  void visit_layer(int64_t layer, const Visitor& visit) const;

  ModelConfig config_;
  int64_t vision_blocks_ = 0;
  ExpertStorage experts_;
  std::string text_prefix_;
  std::vector<Family> families_;
  std::array<std::map<std::string, size_t, std::less<>>, 9> by_suffix_;  // per place: suffix -> families_
};

// What stands before the names of the text model: "language_model." when any tensor begins so, else "".
std::string text_prefix_of(const CheckpointIndex& index);
std::string text_prefix_of(const Checkpoint& checkpoint);

}  // namespace trefoil
