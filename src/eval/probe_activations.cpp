#include <algorithm>

#include "eval/isolated_probe.h"
#include "eval/probe.h"
#include "eval/stream_probe.h"

namespace trefoil {
namespace {

// One model on its way through the layers with one batch of rows.
class Walker {
 public:
  Walker(const Model& model, std::span<const EvalRow> rows) : model_(model), states_(rows.size()) {
    std::vector<int32_t> ids;
    for (size_t r = 0; r < rows.size(); ++r) {
      states_[r] = model.new_sequence();
      const int64_t begin = static_cast<int64_t>(ids.size());
      ids.insert(ids.end(), rows[r].ids.begin(), rows[r].ids.end());
      sequences_.push_back({&states_[r], begin, static_cast<int64_t>(rows[r].ids.size())});
    }
    stream_ = model.embed(ids);
  }
  Walker(const Walker&) = delete;
  Walker& operator=(const Walker&) = delete;

  LayerStep run(int64_t layer) {
    LayerStep step;
    run_layer(model_, layer, stream_, sequences_, &step);
    return step;
  }
  const ResidualStream& stream() const { return stream_; }

 private:
  const Model& model_;
  std::vector<SequenceState> states_;
  std::vector<SequenceRows> sequences_;
  ResidualStream stream_;
};

// Everything that belongs to one candidate.
struct CandidateProbe {
  std::unique_ptr<Model> model;
  std::unique_ptr<IsolatedProbe> isolated;
  std::unique_ptr<StreamProbe> stream;
};

void probe_batch(const Model& reference, std::span<CandidateProbe> candidates, std::span<const EvalRow> rows,
                 int64_t first_row, int64_t num_rows, ProgressSink& progress) {
  std::vector<int32_t> token_rows;
  for (size_t r = 0; r < rows.size(); ++r) {
    token_rows.insert(token_rows.end(), rows[r].ids.size(), static_cast<int32_t>(first_row) + static_cast<int32_t>(r));
  }
  Walker original(reference, rows);
  std::vector<std::unique_ptr<Walker>> walkers;
  for (const CandidateProbe& candidate : candidates)
    walkers.push_back(std::make_unique<Walker>(*candidate.model, rows));
  const int64_t num_layers = reference.config().num_hidden_layers;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    progress.update("probe layers", first_row * num_layers + layer, num_rows * num_layers);
    const LayerStep expected = original.run(layer);
    for (size_t c = 0; c < candidates.size(); ++c) {
      const LayerStep found = walkers[c]->run(layer);
      candidates[c].stream->add(layer, token_rows, original.stream(), walkers[c]->stream(), expected, found);
      if (reference.config().is_moe(layer)) candidates[c].isolated->add(layer, expected);
    }
  }
}

}  // namespace

void probe_activations(const EvalText& text, const LoadedModel& reference, std::span<const LoadedModel> candidates,
                       const ProbeSettings& settings, ThreadPool& pool, ProgressSink& progress,
                       std::span<ProbeSummary> summaries) {
  ForwardOptions options;
  options.numerics = settings.numerics;
  const std::unique_ptr<Model> original = reference.make_model(options, pool);
  std::vector<CandidateProbe> probes;
  for (const LoadedModel& candidate : candidates) {
    CandidateProbe probe;
    probe.model = candidate.make_model(options, pool);
    probe.isolated = std::make_unique<IsolatedProbe>(reference, candidate, *probe.model, pool);
    probe.stream = std::make_unique<StreamProbe>(reference, candidate, pool);
    probes.push_back(std::move(probe));
  }
  const int64_t rows = static_cast<int64_t>(text.rows.size()), batch = std::max<int64_t>(1, settings.batch_rows);
  for (int64_t begin = 0; begin < rows; begin += batch) {
    const int64_t count = std::min(batch, rows - begin);
    const std::span<const EvalRow> part =
        std::span(text.rows).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
    probe_batch(*original, probes, part, begin, rows, progress);
  }
  for (size_t c = 0; c < probes.size(); ++c) {
    summaries[c].isolated = probes[c].isolated->layers();
    summaries[c].load_deciles = probes[c].isolated->load_deciles();
    summaries[c].stream = probes[c].stream->layers(rows);
  }
}

}  // namespace trefoil
