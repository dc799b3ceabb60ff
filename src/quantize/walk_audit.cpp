#include "quantize/walk_audit.h"

#include <algorithm>
#include <map>
#include <optional>

#include "quantize/stop.h"
#include "quantize/unit_names.h"

namespace trefoil {
namespace {

class Audit {
 public:
  explicit Audit(const WalkInputs& in) : in_(in) {}

  void run() {
    check_shards();
    if (in_.activations != nullptr) check_activations();
  }

 private:
  // Units of experts and copies stand for themselves.
  void check_shards() {
    std::vector<std::string> units;
    for (const std::string& unit : in_.ledger.units()) {
      if (is_expert_unit(unit) || is_copy_unit(unit)) units.push_back(unit);
    }
    std::vector<char> intact(units.size());
    in_.progress.update("checking what an earlier run finished", 0, static_cast<int64_t>(units.size()));
    in_.pool.parallel_for(static_cast<int64_t>(units.size()), [&](int64_t i) {
      const auto at = static_cast<size_t>(i);
      stop_if_asked(in_.options.stop);
      intact[at] = is_intact(units[at], in_.shards.folder()) ? 1 : 0;
    });
    for (size_t i = 0; i < units.size(); ++i) {
      if (intact[i] == 0) in_.ledger.forget(units[i]);
    }
  }

  bool is_intact(const std::string& unit, const fs::path& folder) const {
    const std::optional<UnitRecord> record = in_.ledger.find(unit);
    return record && std::all_of(record->ranges.begin(), record->ranges.end(),
                                 [&](const WrittenRange& range) { return range_is_intact(folder, range); });
  }

  // The walk goes on from the last layer whose inputs are all there; layers before it are done, later ones are not. Once
  // the last layer is solved its activations are gone, and nothing needs them.
  void check_activations() {
    int64_t start = in_.layers.back().layer;
    if (is_solved_before(start + 1)) return;
    collect_activation_units();
    while (start > 0 && !(is_solved_before(start) && inputs_are_intact(start))) --start;
    for (const auto& [unit, layer] : activation_units_) {
      if (layer > start || (layer == start && !is_intact(unit, in_.activations->folder()))) in_.ledger.forget(unit);
    }
  }

  void collect_activation_units() {
    for (const std::string& unit : in_.ledger.units()) {
      if (is_expert_unit(unit) || is_copy_unit(unit)) continue;
      const std::optional<UnitRecord> record = in_.ledger.find(unit);
      if (!record) {
        in_.ledger.forget(unit);
        continue;
      }
      activation_units_[unit] = std::stoll(unit.substr(1));
      for (const WrittenRange& range : record->ranges) ranges_[range.file].push_back(range);
    }
  }

  bool is_solved_before(int64_t layer) {
    for (const MoeLayer& moe : in_.layers) {
      if (moe.layer >= layer) continue;
      const auto experts = static_cast<int64_t>(moe.experts.size());
      for (int64_t begin = 0; begin < experts; begin += in_.grain.experts_per_unit) {
        if (!in_.ledger.is_done(unit_name(moe.layer, kExpertStep, begin))) return false;
      }
    }
    return true;
  }

  bool inputs_are_intact(int64_t layer) {
    const bool two = has_original_stream(in_.options) && layer > split_layer_of(in_.layers);
    for (const Stream stream : {Stream::kQuantized, Stream::kOriginal}) {
      if (stream == Stream::kOriginal && !two) continue;
      for (const std::string& file : in_.activations->files_at(stream, layer)) {
        if (!file_is_intact(file)) return false;
      }
    }
    return true;
  }

  bool file_is_intact(const std::string& file) {
    if (const auto known = intact_files_.find(file); known != intact_files_.end()) return known->second;
    uint64_t bytes = 0;
    bool intact = true;
    for (const WrittenRange& range : ranges_[file]) {
      stop_if_asked(in_.options.stop);
      bytes += range.bytes;
      intact = intact && range_is_intact(in_.activations->folder(), range);
    }
    return intact_files_[file] = intact && bytes == in_.activations->prefix_bytes();
  }

  const WalkInputs& in_;
  std::map<std::string, int64_t> activation_units_;          // unit -> layer
  std::map<std::string, std::vector<WrittenRange>> ranges_;  // by file
  std::map<std::string, bool> intact_files_;
};

}  // namespace

void audit_walk(const WalkInputs& inputs) {
  Audit(inputs).run();
}

}  // namespace trefoil
