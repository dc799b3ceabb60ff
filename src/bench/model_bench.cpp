// bench_model() of include/trefoil/bench.h.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "base/page_buffer.h"
#include "base/splitmix64.h"
#include "base/stopwatch.h"
#include "bench/ceilings.h"
#include "bench/paired.h"
#include "model/model.h"
#include "model/profile.h"
#include "model/resident_weights.h"

namespace trefoil {
namespace {

// Memory that is read to learn the rate of the moment: a piece of it at a time, so that no cache holds the next one.
class ReadProbe {
 public:
  explicit ReadProbe(ThreadPool& pool) : pool_(pool), memory_(kBytes) {
    pool_.parallel_for(static_cast<int64_t>(kBytes / kPiece), [&](int64_t i) {
      std::byte* piece = memory_.data() + static_cast<uint64_t>(i) * kPiece;
      std::fill(piece, piece + kPiece, static_cast<std::byte>(i));
    });
  }
  double rate() {
    next_ = (next_ + 1) % (kBytes / kPiece);
    return read_rate(pool_, memory_.bytes().subspan(next_ * kPiece, kPiece));
  }

 private:
  static constexpr uint64_t kPiece = uint64_t{192} << 20;
  static constexpr uint64_t kBytes = 8 * kPiece;
  ThreadPool& pool_;
  PageBuffer memory_;
  uint64_t next_ = 0;
};

std::vector<int32_t> random_ids(const ModelConfig& config, int64_t count, uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random.next() % static_cast<uint64_t>(config.vocab_size));
  return ids;
}

}  // namespace

BenchModelResult bench_model(const BenchModelOptions& options, ProgressSink* progress) {
  if (options.new_tokens < 1 || options.prompt_tokens < 1) {
    fail(ErrorCode::kInvalidArgument, "bench model: {} prompt and {} new tokens, expected at least 1 of each",
         options.prompt_tokens, options.new_tokens);
  }
  ThreadPool pool(options.threads > 0 ? options.threads : usable_cpus());
  const ModelConfig config = load_model_config(options.model);
  const auto checkpoint =
      std::make_shared<const Checkpoint>(Checkpoint::open(options.model, Checkpoint::Access::kRead));
  BenchModelResult result;
  const Stopwatch load_time;
  const auto weights =
      std::make_shared<ResidentWeights>(checkpoint, ResidentWeights::Options{.trunk = options.trunk}, pool);
  Model model(config, weights, {.kda = KdaForm::kChunked, .mla = MlaForm::kAbsorbed, .kernels = options.kernels}, pool);
  result.load_seconds = load_time.seconds();
  const ResidentReport report = weights->report();
  result.resident_bytes = report.tile_bytes + report.row_bytes;
  result.int8_relative_error = report.int8_relative_error;

  SequenceState state = model.new_sequence();
  const std::vector<int32_t> prompt = random_ids(config, options.prompt_tokens, options.seed);
  const Stopwatch prefill_time;
  model.forward(prompt, state, true);
  result.prefill_tokens_per_s = static_cast<double>(options.prompt_tokens) / prefill_time.seconds();

  ReadProbe probe(pool);
  Profile profile;
  model.set_profile(&profile);
  std::vector<double> seconds, rates, floors, ratios;
  for (const int32_t id : random_ids(config, options.new_tokens, options.seed + 1)) {
    uint64_t before = 0;
    for (const Profile::Entry& entry : profile.entries) before += entry.bytes;
    const double first_rate = probe.rate();
    const Stopwatch time;
    model.forward({&id, 1}, state, true);
    seconds.push_back(time.seconds());
    rates.push_back((first_rate + probe.rate()) / 2);
    uint64_t after = 0;
    for (const Profile::Entry& entry : profile.entries) after += entry.bytes;
    floors.push_back(static_cast<double>(after - before) / rates.back());
    ratios.push_back(floors.back() / seconds.back());
    if (progress != nullptr) progress->update("decode", static_cast<int64_t>(seconds.size()), options.new_tokens);
  }
  result.decode_tokens_per_s = 1 / quantile(seconds, 0.5);
  result.read_bytes_per_s = quantile(rates, 0.5);
  result.floor_seconds = quantile(floors, 0.5);
  result.floor_ratio = quantile(ratios, 0.5);
  result.ratio_low = quantile(ratios, 0.25);
  result.ratio_high = quantile(ratios, 0.75);
  const double tokens = static_cast<double>(options.new_tokens);
  double known = 0;
  for (size_t i = 0; i < kNumForwardParts; ++i) {
    const Profile::Entry& entry = profile.entries[i];
    const auto component = static_cast<ForwardPart>(i);
    if (component == ForwardPart::kOther) continue;
    known += entry.seconds;
    result.components.push_back({to_string(component), entry.seconds / tokens,
                                 entry.bytes / static_cast<uint64_t>(options.new_tokens)});
  }
  double total = 0;
  for (const double value : seconds) total += value;
  result.components.push_back({to_string(ForwardPart::kOther), std::max(0.0, total - known) / tokens, 0});
  return result;
}

std::string format_bench(const BenchModelResult& result) {
  std::string text = fmt::format(
      "loaded {:.2f} GB in {:.1f} s; prefill {:.2f} tokens/s; decode {:.3f} tokens/s\n"
      "floor: {:.2f} GB a token at {:.1f} GB/s = {:.1f} ms; decode reaches {:.1f} % of it (quartiles {:.1f} - {:.1f} %)\n",
      static_cast<double>(result.resident_bytes) / 1e9, result.load_seconds, result.prefill_tokens_per_s,
      result.decode_tokens_per_s, result.floor_seconds * result.read_bytes_per_s / 1e9, result.read_bytes_per_s / 1e9,
      1e3 * result.floor_seconds, 100 * result.floor_ratio, 100 * result.ratio_low, 100 * result.ratio_high);
  if (result.int8_relative_error > 0) {
    text += fmt::format("int8 trunk: relative rms change of the weights {:.5f}\n", result.int8_relative_error);
  }
  text += fmt::format("{:<20} {:>10} {:>10} {:>8} {:>10}\n", "component", "ms/token", "MB/token", "GB/s", "of floor");
  for (const BenchComponent& part : result.components) {
    const double rate = part.seconds > 0 ? static_cast<double>(part.bytes) / part.seconds : 0;
    fmt::format_to(std::back_inserter(text), "{:<20} {:>10.2f} {:>10.1f} {:>8.1f} {:>9.1f}%\n", part.name,
                   1e3 * part.seconds, static_cast<double>(part.bytes) / 1e6, rate / 1e9,
                   100 * rate / result.read_bytes_per_s);
  }
  return text;
}

}  // namespace trefoil
