#include "plan/model_facts.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "base/error.h"

namespace trefoil {
namespace {

// A kind of trouble: how often, and the first case as an example.
struct Cases {
  int64_t count = 0;
  std::string first;
  void add(std::string example) {
    if (count++ == 0) first = std::move(example);
  }
};

// One pass over the tensors. The order of the calls does not matter.
class Gatherer {
 public:
  explicit Gatherer(const ModelSource& source) : source_(source), inventory_(source.inventory()) {
    facts_.layers.resize(static_cast<size_t>(source.config.num_hidden_layers));
  }

  void add(const SourceTensor& tensor);
  ModelFacts finish();

 private:
  void add_expected(const SourceTensor& tensor, const TensorIdentity& identity);
  void add_unexpected(const SourceTensor& tensor, const TensorIdentity& identity);
  void count(const SourceTensor& tensor, const TensorIdentity& identity, uint64_t parameters, uint64_t bytes);
  void note_wrong_layer_kind(const TensorIdentity& identity);
  void find_missing(Cases& missing) const;
  void find_experts_short(Cases& cases) const;
  void report(const Cases& cases, Finding::Severity severity, std::string_view what);
  void check_total();

  const ModelSource& source_;
  TensorInventory inventory_;
  ModelFacts facts_;
  int64_t found_expected_ = 0;
  int64_t last_layer_ = -1, last_expert_ = -1;  // names are sorted: an expert's tensors follow each other
  Cases unknown_, unexpected_, wrong_kind_, mismatched_;
};

void Gatherer::add(const SourceTensor& tensor) {
  const std::optional<TensorIdentity> identity = inventory_.identify(tensor.name);
  if (!identity.has_value()) {
    unknown_.add(std::string(tensor.name));
    facts_.unknown.tensors += 1;
    facts_.unknown.bytes += tensor.info != nullptr ? tensor.info->size() : 0;
    return;
  }
  identity->expected != nullptr ? add_expected(tensor, *identity) : add_unexpected(tensor, *identity);
}

void Gatherer::add_expected(const SourceTensor& tensor, const TensorIdentity& identity) {
  ++found_expected_;
  const ExpectedTensor& expected = *identity.expected;
  if (tensor.info != nullptr && !expected.matches(tensor.info->dtype, tensor.info->shape)) {
    mismatched_.add(fmt::format("{} is {} {}, expected {} {}", tensor.name, to_string(tensor.info->dtype),
                                to_string(tensor.info->shape), to_string(expected.dtype), to_string(expected.shape)));
  }
  const uint64_t bytes = tensor.info != nullptr ? tensor.info->size() : expected.bytes;
  count(tensor, identity, expected.parameters, bytes);
}

// A tensor the config does not demand still has bytes, when its header is known.
void Gatherer::add_unexpected(const SourceTensor& tensor, const TensorIdentity& identity) {
  unexpected_.add(std::string(tensor.name));
  note_wrong_layer_kind(identity);
  count(tensor, identity, 0, tensor.info != nullptr ? tensor.info->size() : 0);
}

void Gatherer::note_wrong_layer_kind(const TensorIdentity& identity) {
  const int64_t layer = identity.layer;
  if (layer < 0 || layer >= source_.config.num_hidden_layers) return;
  const bool kda_in_mla = identity.component == Component::kKda && !source_.config.is_kda(layer);
  const bool mla_in_kda = identity.component == Component::kMla && source_.config.is_kda(layer);
  if (kda_in_mla || mla_in_kda) {
    wrong_kind_.add(fmt::format("layer {} is {} by the config and has tensors of {}", layer, mla_in_kda ? "KDA" : "MLA",
                                mla_in_kda ? "MLA" : "KDA"));
  }
}

void Gatherer::count(const SourceTensor& tensor, const TensorIdentity& identity, uint64_t parameters, uint64_t bytes) {
  ComponentFacts& component = facts_.components[static_cast<size_t>(identity.component)];
  component.tensors += 1;
  component.parameters += parameters;
  component.bytes += bytes;
  facts_.total_bytes += bytes;
  if (identity.layer >= 0 && identity.layer < source_.config.num_hidden_layers) {
    LayerFacts& layer = facts_.layers[static_cast<size_t>(identity.layer)];
    layer.tensors += 1;
    layer.bytes += bytes;
    layer.routed_bytes += is_routed(identity.component) ? bytes : 0;
    const bool same_expert = identity.layer == last_layer_ && identity.expert == last_expert_;
    layer.experts += identity.expert >= 0 && !same_expert ? 1 : 0;
    last_layer_ = identity.layer;
    last_expert_ = identity.expert;
  }
  const Shape* shape = tensor.info != nullptr         ? &tensor.info->shape
                       : identity.expected != nullptr ? &identity.expected->shape
                                                      : nullptr;
  if (shape == nullptr || !is_plain_linear(tensor.name, identity, *shape)) return;
  const DType dtype = tensor.info != nullptr ? tensor.info->dtype : identity.expected->dtype;
  FormatSummary& format = facts_.plain_linears[std::string(to_string(dtype))];
  format.linears += 1;
  format.parameters += parameters;
  format.bytes += bytes;
}

void Gatherer::report(const Cases& cases, Finding::Severity severity, std::string_view what) {
  if (cases.count == 0) return;
  facts_.findings.push_back(
      {severity,
       fmt::format("{} {}, the first: {}", format_count(static_cast<uint64_t>(cases.count)), what, cases.first)});
}

// Names every demanded tensor, which is slow and done only when some are missing.
void Gatherer::find_missing(Cases& missing) const {
  const int64_t lacking = inventory_.num_expected() - found_expected_;
  if (lacking == 0) return;
  // A config that claims a thousand times what is there need not be written out to be seen through.
  if (inventory_.num_expected() > 16 * (found_expected_ + 1'000'000)) {
    missing.count = lacking;
    missing.first = fmt::format("the config demands {} tensors, {} of them are there",
                                format_count(static_cast<uint64_t>(inventory_.num_expected())),
                                format_count(static_cast<uint64_t>(found_expected_)));
    return;
  }
  std::unordered_set<std::string_view> names;
  names.reserve(source_.num_tensors());
  for_each_tensor(source_, [&](const SourceTensor& tensor) { names.insert(tensor.name); });
  inventory_.for_each_expected([&](const std::string& name, const TensorIdentity&) {
    if (!names.contains(name)) missing.add(name);
  });
}

void Gatherer::find_experts_short(Cases& cases) const {
  for (int64_t layer = 0; layer < source_.config.num_hidden_layers; ++layer) {
    const int64_t found = facts_.layers[static_cast<size_t>(layer)].experts;
    const int64_t expected = source_.config.is_moe(layer) ? source_.config.num_experts : 0;
    if (found != expected) cases.add(fmt::format("layer {} has {}, the config says {}", layer, found, expected));
  }
}

void Gatherer::check_total() {
  if (source_.checkpoint.has_value() || source_.declared_total_size == 0) return;
  if (facts_.total_bytes == source_.declared_total_size) return;
  facts_.findings.push_back({Finding::Severity::kError,
                             fmt::format("the tensors' computed sizes add up to {} bytes, the index says total_size {}",
                                         facts_.total_bytes, source_.declared_total_size)});
}

ModelFacts Gatherer::finish() {
  Cases missing, experts_short;
  find_missing(missing);
  find_experts_short(experts_short);
  report(wrong_kind_, Finding::Severity::kError,
         "tensors sit in a layer of the other attention kind (layer lists count "
         "from 1)");
  report(experts_short, Finding::Severity::kError, "layers with another number of routed experts than the config says");
  report(missing, Finding::Severity::kError, "tensors are missing");
  report(mismatched_, Finding::Severity::kError,
         "tensors with another dtype or shape than the config and the storage of "
         "the experts demand");
  report(unexpected_, Finding::Severity::kError, "tensors have no place in the model the config describes");
  report(unknown_, Finding::Severity::kWarning, "tensors have names of no known family");
  check_total();
  return std::move(facts_);
}

}  // namespace

bool is_plain_linear(std::string_view name, const TensorIdentity& identity, const Shape& shape) {
  return !is_routed(identity.component) && identity.component != Component::kEmbedTokens && shape.size() == 2 &&
         name.ends_with(".weight");
}

uint64_t ModelFacts::num_tensors() const {
  uint64_t total = unknown.tensors;
  for (const ComponentFacts& component : components) total += component.tensors;
  return total;
}

uint64_t ModelFacts::routed_bytes() const {
  return of(Component::kRoutedPacked).bytes + of(Component::kRoutedScales).bytes + of(Component::kRoutedShapes).bytes;
}

uint64_t ModelFacts::text_bytes() const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < kNumComponents; ++i) bytes += is_text(static_cast<Component>(i)) ? components[i].bytes : 0;
  return bytes;
}

ModelFacts gather_facts(const ModelSource& source) {
  Gatherer gatherer(source);
  for_each_tensor(source, [&](const SourceTensor& tensor) { gatherer.add(tensor); });
  return gatherer.finish();
}

TokenTraffic token_traffic(const ModelSource& source, const ModelFacts& facts) {
  TokenTraffic traffic;
  const auto top_k = static_cast<uint64_t>(source.config.num_experts_per_token);
  for (const LayerFacts& layer : facts.layers) {
    if (layer.experts > 0) traffic.routed_bytes += layer.routed_bytes / static_cast<uint64_t>(layer.experts) * top_k;
  }
  const uint64_t table = facts.of(Component::kEmbedTokens).bytes;
  traffic.resident_bytes =
      facts.text_bytes() - facts.routed_bytes() - table + table / static_cast<uint64_t>(source.config.vocab_size);
  return traffic;
}

}  // namespace trefoil
