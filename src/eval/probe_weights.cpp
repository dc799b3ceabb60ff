#include <algorithm>
#include <cmath>
#include <cstring>

#include "eval/probe.h"
#include "tensor/bf16.h"
#include "tensor/packed_int.h"

namespace trefoil {
namespace {

constexpr int64_t kRowsAtOnce = 64;
constexpr const char* kKinds[] = {"w1", "w3", "w2"};

// What is added up over one matrix, and over all of them.
struct Sums {
  int64_t matrices = 0, elements = 0;
  double error = 0, reference = 0, candidate = 0, product = 0;  // sums of squares, and of w * q
  std::vector<int64_t> codes;
  int64_t clipped = 0, scales = 0, negative = 0;
  double scale_min = INFINITY, scale_max = 0;

  void add(const Sums& other) {
    matrices += other.matrices;
    elements += other.elements;
    error += other.error;
    reference += other.reference;
    candidate += other.candidate;
    product += other.product;
    codes.resize(std::max(codes.size(), other.codes.size()), 0);
    for (size_t i = 0; i < other.codes.size(); ++i) codes[i] += other.codes[i];
    clipped += other.clipped;
    scales += other.scales;
    negative += other.negative;
    scale_min = std::min(scale_min, other.scale_min);
    scale_max = std::max(scale_max, other.scale_max);
  }
};

void add_values(std::span<const float> w, std::span<const float> q, Sums* sums) {
  for (size_t i = 0; i < w.size(); ++i) {
    const double a = w[i], b = q[i];
    sums->error += (a - b) * (a - b);
    sums->reference += a * a;
    sums->candidate += b * b;
    sums->product += a * b;
  }
  sums->elements += static_cast<int64_t>(w.size());
}

// One row of packed integers: codes, scales, and what the reference's weights would have needed.
void add_codes(const StoredLinear& linear, std::span<const int8_t> q, std::span<const float> scales,
               std::span<const float> w, Sums* sums) {
  const int lowest = -(1 << (linear.num_bits - 1));
  const double low_edge = lowest - 0.5, high_edge = -lowest - 1 + 0.5;
  for (const float scale : scales) {
    ++sums->scales;
    sums->negative += scale < 0;
    sums->scale_min = std::min(sums->scale_min, static_cast<double>(std::fabs(scale)));
    sums->scale_max = std::max(sums->scale_max, static_cast<double>(std::fabs(scale)));
  }
  for (size_t i = 0; i < q.size(); ++i) {
    ++sums->codes[static_cast<size_t>(q[i] - lowest)];
    const double scale = scales[i / static_cast<size_t>(linear.group_size)];
    const double exact = scale != 0 ? w[i] / scale : 0;
    sums->clipped += exact < low_edge || exact > high_edge;
  }
}

// Raw rows of a packed matrix, through the mapping.
class CodeReader {
 public:
  CodeReader(const LoadedModel& model, const StoredLinear& linear)
      : linear_(linear),
        packed_(model.checkpoint->view(*linear.packed)),
        scale_(model.checkpoint->view(*linear.scale)),
        words_(static_cast<size_t>(packed_words(linear.num_bits, linear.in_features, linear.layout))),
        codes_(static_cast<size_t>(linear.in_features)),
        scales_(static_cast<size_t>(linear.in_features / linear.group_size)) {}

  void add_row(int64_t row, std::span<const float> w, Sums* sums) {
    const size_t at = static_cast<size_t>(row);
    std::memcpy(words_.data(), packed_.data.data() + at * words_.size() * 4, words_.size() * 4);
    unpack_row(linear_.num_bits, linear_.layout, words_, codes_);
    for (size_t g = 0; g < scales_.size(); ++g) {
      scales_[g] = bf16_to_f32(load<uint16_t>(scale_.data.data() + (at * scales_.size() + g) * 2));
    }
    add_codes(linear_, codes_, scales_, w, sums);
  }

 private:
  const StoredLinear& linear_;
  TensorView packed_, scale_;
  std::vector<uint32_t> words_;
  std::vector<int8_t> codes_;
  std::vector<float> scales_;
};

Sums probe_matrix(const LoadedModel& reference, const LoadedModel& candidate, int64_t layer, int64_t expert,
                  const char* kind) {
  const StoredLinear original = stored_expert(reference, layer, expert, kind);
  const StoredLinear linear = stored_expert(candidate, layer, expert, kind);
  const size_t cols = static_cast<size_t>(linear.in_features);
  Sums sums;
  sums.matrices = 1;
  const bool coded = linear.format == LinearFormat::kPackedInt && linear.scale->info.dtype == DType::kBF16;
  std::unique_ptr<CodeReader> codes;
  if (coded) {
    sums.codes.assign(size_t{1} << linear.num_bits, 0);
    codes = std::make_unique<CodeReader>(candidate, linear);
  }
  std::vector<float> w(static_cast<size_t>(kRowsAtOnce) * cols), q(w.size());
  for (int64_t begin = 0; begin < linear.out_features; begin += kRowsAtOnce) {
    const int64_t end = std::min(linear.out_features, begin + kRowsAtOnce);
    const size_t size = static_cast<size_t>(end - begin) * cols;
    const std::span<float> block_w = std::span(w).first(size), block_q = std::span(q).first(size);
    decode_linear(*reference.checkpoint, original, begin, end, block_w);
    decode_linear(*candidate.checkpoint, linear, begin, end, block_q);
    add_values(block_w, block_q, &sums);
    for (int64_t row = begin; codes != nullptr && row < end; ++row) {
      codes->add_row(row, block_w.subspan(static_cast<size_t>(row - begin) * cols, cols), &sums);
    }
  }
  return sums;
}

std::vector<int64_t> experts_to_probe(int64_t num_experts, int64_t wanted) {
  const int64_t count = wanted <= 0 ? num_experts : std::min(wanted, num_experts);
  std::vector<int64_t> experts;
  for (int64_t k = 0; k < count; ++k) experts.push_back(k * num_experts / count);
  return experts;
}

WeightKindProbe summarize_kind(const char* kind, const std::string& storage, const Sums& sums) {
  WeightKindProbe probe;
  probe.kind = kind;
  probe.storage = storage;
  probe.matrices = sums.matrices;
  probe.elements = sums.elements;
  if (sums.reference > 0) probe.relative_rms = std::sqrt(sums.error / sums.reference);
  if (sums.reference > 0 && sums.candidate > 0) {
    probe.cosine = sums.product / std::sqrt(sums.reference * sums.candidate);
  }
  if (sums.codes.empty()) return probe;
  probe.codes = sums.codes;
  probe.lowest_code = -static_cast<int64_t>(sums.codes.size() / 2);
  probe.clipped_share = static_cast<double>(sums.clipped) / static_cast<double>(sums.elements);
  probe.scale_min = sums.scale_min;
  probe.scale_max = sums.scale_max;
  probe.negative_scale_share = static_cast<double>(sums.negative) / static_cast<double>(sums.scales);
  return probe;
}

}  // namespace

std::vector<int64_t> moe_layers(const ModelConfig& config) {
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    if (config.is_moe(layer)) layers.push_back(layer);
  }
  return layers;
}

ProbeSummary blank_probe(const LoadedModel& reference, const LoadedModel& candidate) {
  ProbeSummary probe;
  probe.label = candidate.label;
  probe.layers = moe_layers(reference.config);
  for (const char* kind : kKinds) {
    WeightKindProbe weights;
    weights.kind = kind;
    if (!probe.layers.empty()) {
      const StoredLinear linear = stored_expert(candidate, probe.layers.front(), 0, kind);
      if (linear.format == LinearFormat::kPackedInt) weights.codes.assign(size_t{1} << linear.num_bits, 0);
    }
    weights.relative_rms_by_layer.assign(probe.layers.size(), kNoValue);
    probe.weights.push_back(weights);
  }
  for (const int64_t layer : probe.layers) probe.isolated.push_back({layer, {}, {}, {}, {}, {}, {}});
  for (int64_t layer = 0; layer < reference.config.num_hidden_layers; ++layer) {
    probe.stream.emplace_back();
    probe.stream.back().layer = layer;
  }
  for (int64_t decile = 0; decile < kLoadDeciles; ++decile) probe.load_deciles.push_back({decile, 0, 0, {}});
  return probe;
}

std::vector<WeightKindProbe> probe_weights(const LoadedModel& reference, const LoadedModel& candidate,
                                           const ProbeSettings& settings, ThreadPool& pool, ProgressSink& progress) {
  const std::vector<int64_t> layers = moe_layers(reference.config);
  const std::vector<int64_t> experts = experts_to_probe(reference.config.num_experts, settings.experts_per_layer);
  std::vector<WeightKindProbe> probes;
  for (size_t k = 0; k < std::size(kKinds); ++k) {
    const char* kind = kKinds[k];
    Sums total;
    std::vector<double> by_layer;
    for (size_t l = 0; l < layers.size(); ++l) {
      progress.update("probe weights of " + candidate.label, static_cast<int64_t>(k * layers.size() + l),
                      static_cast<int64_t>(std::size(kKinds) * layers.size()));
      std::vector<Sums> matrices(experts.size());
      pool.parallel_for(static_cast<int64_t>(experts.size()), [&](int64_t i) {
        const size_t at = static_cast<size_t>(i);
        matrices[at] = probe_matrix(reference, candidate, layers[l], experts[at], kind);
      });
      Sums layer;
      for (const Sums& matrix : matrices) layer.add(matrix);  // in order, so that threads do not change the sums
      by_layer.push_back(layer.reference > 0 ? std::sqrt(layer.error / layer.reference) : kNoValue);
      total.add(layer);
    }
    const std::string storage = layers.empty() ? "-" : storage_name(stored_expert(candidate, layers[0], 0, kind));
    probes.push_back(summarize_kind(kind, storage, total));
    probes.back().relative_rms_by_layer = by_layer;
  }
  return probes;
}

}  // namespace trefoil
