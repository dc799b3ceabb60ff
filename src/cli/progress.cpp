#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>

#include "cli/command.h"
#include "cli/progress_line.h"

namespace trefoil::cli {
namespace {

using Clock = std::chrono::steady_clock;

class JsonProgress : public ProgressSink {
 public:
  void update(std::string_view stage, int64_t done, int64_t total) override {
    put(progress_json({std::string(stage), done, total, std::nullopt, 0}));
  }
  void update_job(std::string_view stage, int64_t done, int64_t total, const ProgressRates& rates) override {
    put(progress_json({std::string(stage), done, total, rates, 0}));
  }
  void note(std::string_view message) override { put(note_json(message)); }

 private:
  void put(const std::string& json) {
    const std::lock_guard lock(mutex_);
    std::fprintf(stderr, "%s\n", json.c_str());
  }

  std::mutex mutex_;
};

// A redrawn line on a terminal; elsewhere a plain one at each new stage and every few seconds.
class TextProgress : public ProgressSink {
 public:
  explicit TextProgress(bool terminal) : terminal_(terminal) {}
  ~TextProgress() override { clear(); }

  void update(std::string_view stage, int64_t done, int64_t total) override {
    draw({std::string(stage), done, total, std::nullopt, 0});
  }

  void update_job(std::string_view stage, int64_t done, int64_t total, const ProgressRates& rates) override {
    draw({std::string(stage), done, total, rates, 0});
  }

  void note(std::string_view message) override {
    const std::lock_guard lock(mutex_);
    clear();
    std::fprintf(stderr, "%s\n", note_line(message).c_str());
  }

  void make_way() override {
    const std::lock_guard lock(mutex_);
    clear();
    stage_.clear();
  }

 private:
  void draw(ProgressState state) {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    const bool new_stage = state.stage != stage_;
    if (new_stage) stage_started_ = now;
    const auto wait = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000);
    if (now - drawn_ < wait && (!new_stage || terminal_)) return;
    stage_ = state.stage;
    drawn_ = now;
    state.stage_left_s = stage_left(now, state.done, state.total);
    if (!terminal_) {
      std::fprintf(stderr, "%s\n", progress_line(state, std::string::npos).c_str());
      return;
    }
    std::fprintf(stderr, "\r\033[K%s", progress_line(state, width()).c_str());
    std::fflush(stderr);
    line_shown_ = true;
  }

  void clear() {
    if (line_shown_) {
      std::fputs("\r\033[K", stderr);
      std::fflush(stderr);
    }
    line_shown_ = false;
  }

  double stage_left(Clock::time_point now, int64_t done, int64_t total) const {
    const double elapsed_s = std::chrono::duration<double>(now - stage_started_).count();
    if (total <= 0 || done <= 0 || elapsed_s < 2) return 0;
    return elapsed_s * static_cast<double>(total - done) / static_cast<double>(done);
  }

  static size_t width() {
    winsize size{};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79u;
  }

  const bool terminal_;
  std::mutex mutex_;
  std::string stage_;
  Clock::time_point drawn_{};
  Clock::time_point stage_started_{};
  bool line_shown_ = false;
};

}  // namespace

std::unique_ptr<ProgressSink> make_progress(const std::string& mode) {
  if (mode == "off") return std::make_unique<ProgressSink>();
  if (mode == "json") return std::make_unique<JsonProgress>();
  return std::make_unique<TextProgress>(isatty(STDERR_FILENO) == 1);
}

}  // namespace trefoil::cli
