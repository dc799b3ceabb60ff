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
#include "model/engine.h"
#include "model/profile.h"
#include "plan/machine.h"

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

uint64_t total_bytes(const Profile& profile) {
  uint64_t bytes = 0;
  for (const Profile::Entry& entry : profile.entries) bytes += entry.bytes;
  return bytes;
}

std::optional<StreamReport> difference(std::optional<StreamReport> after, const std::optional<StreamReport>& before) {
  if (!after) return after;
  after->hits -= before->hits;
  after->late_hits -= before->late_hits;
  after->misses -= before->misses;
  after->bytes_read -= before->bytes_read;
  after->bytes_used -= before->bytes_used;
  after->bytes_hinted -= before->bytes_hinted;
  after->wait_seconds -= before->wait_seconds;
  after->read_seconds -= before->read_seconds;
  return after;
}

std::string format_stream(const BenchModelResult& result, double step_seconds) {
  const StreamReport& s = *result.stream;
  const double experts = std::max<double>(1, static_cast<double>(s.hits + s.late_hits + s.misses));
  const double steps = result.tokens / result.sequences;
  std::string text = fmt::format("drive: {}\n", s.mode);
  text += fmt::format(
      "experts: {:.1f} % in memory before their step, {:.1f} % on their way, {:.1f} % not begun; {} of {} fit the "
      "cache\n",
      100 * static_cast<double>(s.hits) / experts, 100 * static_cast<double>(s.late_hits) / experts,
      100 * static_cast<double>(s.misses) / experts, result.plan.expert_slots, result.num_experts);
  text += fmt::format(
      "a token: {:.1f} MB read ({:.1f} MB of it used, {:.1f} MB hinted), at {:.2f} GB/s while reading\n",
      static_cast<double>(s.bytes_read) / result.tokens / 1e6, static_cast<double>(s.bytes_used) / result.tokens / 1e6,
      static_cast<double>(s.bytes_hinted) / result.tokens / 1e6,
      s.read_seconds > 0 ? static_cast<double>(s.bytes_read) / s.read_seconds / 1e9 : 0.0);
  const double waiting = s.wait_seconds / steps;
  text += fmt::format("a step waits {:.1f} ms of {:.1f} ms for the drive: the bottleneck is {}\n", 1e3 * waiting,
                      1e3 * step_seconds, waiting > step_seconds / 2 ? "the drive" : "memory and arithmetic");
  return text;
}

}  // namespace

BenchModelResult bench_model(const BenchModelOptions& options, ProgressSink* progress) {
  if (options.new_tokens < 1 || options.prompt_tokens < 1) {
    fail(ErrorCode::kInvalidArgument, "bench model: {} prompt and {} new tokens, expected at least 1 of each",
         options.prompt_tokens, options.new_tokens);
  }
  BenchModelResult result;
  const Stopwatch load_time;
  EngineOptions engine_options = options.engine;
  engine_options.prefill_chunk = options.prompt_tokens;
  Engine engine(options.model, engine_options);
  result.load_seconds = load_time.seconds();
  result.plan = engine.plan();
  result.int8_relative_error = engine.resident().int8_relative_error;

  const size_t sequences = static_cast<size_t>(engine_options.sequences);
  std::vector<SequenceState> states(sequences);
  const Stopwatch prefill_time;
  for (size_t i = 0; i < sequences; ++i) {
    states[i] = engine.model().new_sequence();
    engine.model().forward(random_ids(engine.config(), options.prompt_tokens, options.seed + i), states[i], true);
  }
  result.prefill_tokens_per_s =
      static_cast<double>(options.prompt_tokens) * static_cast<double>(sequences) / prefill_time.seconds();
  result.peak_bytes = peak_resident_bytes();

  ReadProbe probe(engine.pool());
  Profile profile;
  engine.model().set_profile(&profile);
  const std::optional<StreamReport> before = engine.stream_report();
  const std::vector<int32_t> ids =
      random_ids(engine.config(), options.new_tokens * engine_options.sequences, options.seed + 1000);
  std::vector<double> seconds, rates, floors, ratios;
  for (int64_t step = 0; step < options.new_tokens; ++step) {
    std::vector<SequenceTokens> tokens;
    for (size_t i = 0; i < sequences; ++i) {
      tokens.push_back({&states[i], std::span(ids).subspan(static_cast<size_t>(step) * sequences + i, 1)});
    }
    const uint64_t bytes_before = total_bytes(profile);
    const double first_rate = probe.rate();
    const Stopwatch time;
    engine.model().forward(tokens);
    seconds.push_back(time.seconds());
    rates.push_back((first_rate + probe.rate()) / 2);
    floors.push_back(static_cast<double>(total_bytes(profile) - bytes_before) / rates.back());
    ratios.push_back(floors.back() / seconds.back());
    if (progress != nullptr) progress->update("decode", step + 1, options.new_tokens);
  }
  result.tokens = static_cast<double>(options.new_tokens * engine_options.sequences);
  result.sequences = static_cast<double>(sequences);
  result.num_experts = engine.experts() != nullptr ? engine.experts()->layout().num_keys() : 0;
  result.stream = difference(engine.stream_report(), before);
  result.decode_tokens_per_s = static_cast<double>(sequences) / quantile(seconds, 0.5);
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
    result.components.push_back(
        {to_string(component), entry.seconds / tokens, entry.bytes / static_cast<uint64_t>(options.new_tokens)});
  }
  double total = 0;
  for (const double value : seconds) total += value;
  result.components.push_back({to_string(ForwardPart::kOther), std::max(0.0, total - known) / tokens, 0});
  return result;
}

std::string format_bench(const BenchModelResult& result) {
  const MemoryPlan& plan = result.plan;
  const auto gb = [](uint64_t bytes) { return static_cast<double>(bytes) / 1e9; };
  std::string text = fmt::format(
      "memory: planned {:.2f} GB (trunk {:.2f}, experts {:.2f}, states {:.2f}, scratch {:.2f}, program {:.2f}), peak "
      "{:.2f} "
      "GB\nloaded in {:.1f} s; prefill {:.2f} tokens/s; decode {:.3f} tokens/s\n",
      gb(plan.total_bytes()), gb(plan.trunk_bytes), gb(plan.expert_bytes), gb(plan.state_bytes), gb(plan.scratch_bytes),
      gb(plan.program_bytes), gb(result.peak_bytes), result.load_seconds, result.prefill_tokens_per_s,
      result.decode_tokens_per_s);
  text += fmt::format(
      "floor: {:.2f} GB a step at {:.1f} GB/s = {:.1f} ms; decode reaches {:.1f} % of it (quartiles {:.1f} - {:.1f} "
      "%)\n",
      result.floor_seconds * result.read_bytes_per_s / 1e9, result.read_bytes_per_s / 1e9, 1e3 * result.floor_seconds,
      100 * result.floor_ratio, 100 * result.ratio_low, 100 * result.ratio_high);
  if (result.int8_relative_error > 0) {
    text += fmt::format("int8 trunk: relative rms change of the weights {:.5f}\n", result.int8_relative_error);
  }
  if (result.stream) text += format_stream(result, result.sequences / result.decode_tokens_per_s);
  text += fmt::format("{:<20} {:>10} {:>10} {:>8} {:>10}\n", "component", "ms/step", "MB/step", "GB/s", "of floor");
  for (const BenchComponent& part : result.components) {
    const double rate = part.seconds > 0 ? static_cast<double>(part.bytes) / part.seconds : 0;
    fmt::format_to(std::back_inserter(text), "{:<20} {:>10.2f} {:>10.1f} {:>8.1f} {:>9.1f}%\n", part.name,
                   1e3 * part.seconds, static_cast<double>(part.bytes) / 1e6, rate / 1e9,
                   100 * rate / result.read_bytes_per_s);
  }
  return text;
}

}  // namespace trefoil
