// What progress looks like as text: one line for people, cut to a width, or one JSON object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trefoil/progress.h"

namespace trefoil::cli {

struct ProgressState {
  std::string stage;
  int64_t done = 0;
  int64_t total = 0;                   // 0: unknown
  std::optional<ProgressRates> rates;  // of tasks that have them
  double stage_left_s = 0;             // guessed from the stage's own pace; 0: not yet
};

// "layer 3 of 0..92: experts 64/896, 512 tokens/s, 210 GFLOP/s, 12.3 GiB now of 64.0 GiB, 3.2 %, 2 h 10 min left". What does
// not fit `width` characters is left out, the least needed first: the rates, memory, share, the time left; a stage
// longer than that is cut.
std::string progress_line(const ProgressState& state, size_t width);

// "note: message"; terminal_text(), as the line is.
std::string note_line(std::string_view message);

// {"event":"progress","stage":...,"done":...,"total":...}, with rates more keys; null for what is not known.
std::string progress_json(const ProgressState& state);
std::string note_json(std::string_view message);

}  // namespace trefoil::cli
