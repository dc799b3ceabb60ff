#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>

#include "cli/command.h"

namespace trefoil::cli {
namespace {

using Clock = std::chrono::steady_clock;

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += escaped;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string of_total(int64_t done, int64_t total) {
  return total > 0 ? std::to_string(done) + "/" + std::to_string(total) : std::to_string(done);
}

class JsonProgress : public ProgressSink {
 public:
  void update(std::string_view stage, int64_t done, int64_t total) override {
    const std::lock_guard lock(mutex_);
    std::fprintf(stderr, "{\"event\":\"progress\",\"stage\":%s,\"done\":%lld,\"total\":%lld}\n",
                 json_string(stage).c_str(), static_cast<long long>(done), static_cast<long long>(total));
  }
  void note(std::string_view message) override {
    const std::lock_guard lock(mutex_);
    std::fprintf(stderr, "{\"event\":\"note\",\"message\":%s}\n", json_string(message).c_str());
  }

 private:
  std::mutex mutex_;
};

// A terminal gets one line that is drawn again; a log gets a line when a stage begins or some seconds have passed.
class TextProgress : public ProgressSink {
 public:
  explicit TextProgress(bool terminal) : terminal_(terminal) {}
  ~TextProgress() override { clear(); }

  void update(std::string_view stage, int64_t done, int64_t total) override {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    const bool new_stage = stage != stage_;
    if (new_stage) stage_started_ = now;
    const auto wait = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(5000);
    if (now - drawn_ < wait && (!new_stage || terminal_)) return;
    stage_ = stage;
    drawn_ = now;
    std::string line = stage_ + " " + of_total(done, total) + remaining(now, done, total);
    if (!terminal_) {
      std::fprintf(stderr, "%s\n", line.c_str());
      return;
    }
    std::fprintf(stderr, "\r\033[K%s", line.substr(0, width()).c_str());
    std::fflush(stderr);
    line_shown_ = true;
  }

  void note(std::string_view message) override {
    const std::lock_guard lock(mutex_);
    clear();
    std::fprintf(stderr, "note: %.*s\n", static_cast<int>(message.size()), message.data());
  }

 private:
  void clear() {
    if (line_shown_) std::fputs("\r\033[K", stderr);
    line_shown_ = false;
  }

  std::string remaining(Clock::time_point now, int64_t done, int64_t total) const {
    const double elapsed_s = std::chrono::duration<double>(now - stage_started_).count();
    if (total <= 0 || done <= 0 || elapsed_s < 2) return "";
    const double left_s = elapsed_s * static_cast<double>(total - done) / static_cast<double>(done);
    return ", " + std::to_string(static_cast<long long>(left_s + 0.5)) + " s left";
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
