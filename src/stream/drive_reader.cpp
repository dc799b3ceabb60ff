#include "stream/drive_reader.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/page_buffer.h"
#include "stream/direct_alignment.h"
#include "stream/drive_file.h"
#include "stream/pread_backend.h"
#include "stream/uring_backend.h"

namespace trefoil {
namespace {

// Linux moves at most 2^31 - 4096 bytes per call; the rest is read as after a short read.
constexpr uint64_t kLargestTransfer = uint64_t{1} << 30;
// EINTR and EAGAIN without a byte in between: after so many the drive does not work.
constexpr int kMostRetries = 100;

using Clock = std::chrono::steady_clock;

// One request on its way: bytes [begin, end) of the file go to `memory`, `done` of them are there.
struct Request {
  uint32_t file = 0;
  uint64_t begin = 0;
  uint64_t end = 0;     // of what is asked of the system; beyond the file's end where the last page is not whole
  uint64_t needed = 0;  // bytes from `begin` that must come
  uint64_t done = 0;
  MutableBytes memory;
  int buffer = -1;
  int retries = 0;
  DriveRead read;
  ReadDone when_done;
};

}  // namespace

const char* to_string(ReadMode mode) {
  switch (mode) {
    case ReadMode::kAuto:
      return "auto";
    case ReadMode::kUringDirect:
      return "io_uring";
    case ReadMode::kPreadDirect:
      return "pread";
    case ReadMode::kBuffered:
      return "buffered";
  }
  return "unknown";
}

std::optional<ReadMode> parse_read_mode(std::string_view text) {
  for (const ReadMode mode : {ReadMode::kAuto, ReadMode::kUringDirect, ReadMode::kPreadDirect, ReadMode::kBuffered}) {
    if (text == to_string(mode)) return mode;
  }
  return std::nullopt;
}

struct DriveReader::State {
  std::vector<DriveFile> files;
  int depth = 0;
  ReadMode mode = ReadMode::kBuffered;
  std::string report;
  std::unique_ptr<ReadBackend> backend;

  mutable std::mutex mutex;
  bool stop = false;
  Id next_id = 1;
  std::deque<Id> needed;  // waiting, in order
  std::deque<Id> hinted;
  std::map<Id, Request> requests;  // waiting and under way
  int under_way = 0;
  DriveReaderCounters counters;
  Clock::time_point busy_since;
  std::thread thread;

  void choose_backend(const DriveReaderOptions& options);
  std::string try_uring() const;
  bool waits(Id id) const;
  void begin_waiting();
  void begin(Id id, Request& request);
  void run();
  // The request has ended when it returns true, with *error empty when it is whole.
  bool take(Request& request, int64_t result, std::string* error);
  std::string describe(const Request& request, std::string_view why) const;
};

// ---- opening ----

// A real read through a ring, so that a system that lets a ring be made and not used is found out here.
std::string DriveReader::State::try_uring() const {
  std::string refusal;
  const std::unique_ptr<ReadBackend> ring = make_uring_backend(1, &refusal);
  if (ring == nullptr) return refusal;
  if (files.empty()) return {};
  PageBuffer page(kDirectAlignment);
  ring->submit({.id = 1, .fd = files[0].fd(), .offset = 0, .into = page.bytes()});
  std::vector<ReadCompletion> done;
  while (done.empty()) ring->wait(done);
  return done[0].result < 0 ? std::generic_category().message(static_cast<int>(-done[0].result)) : std::string();
}

void DriveReader::State::choose_backend(const DriveReaderOptions& options) {
  const auto buffered = std::find_if(files.begin(), files.end(), [](const DriveFile& f) { return !f.is_direct(); });
  const auto num_buffered =
      std::count_if(files.begin(), files.end(), [](const DriveFile& f) { return !f.is_direct(); });
  const bool wants_direct = options.mode != ReadMode::kBuffered;
  std::string reasons;
  if (wants_direct && buffered != files.end()) {
    reasons = fmt::format("O_DIRECT refused by {} of {} files, {} for one: {}", num_buffered, files.size(),
                          buffered->path().string(), buffered->refusal());
    if (options.mode != ReadMode::kAuto)
      fail(ErrorCode::kUnsupported, "reading by {}: {}", to_string(options.mode), reasons);
  }
  const bool none_direct = num_buffered == static_cast<std::ptrdiff_t>(files.size()) && !files.empty();
  mode = none_direct ? ReadMode::kBuffered : ReadMode::kPreadDirect;
  if (options.make_backend) {
    backend = options.make_backend(depth);
    report = "a backend of the caller's";
    return;
  }
  if (!none_direct && options.mode != ReadMode::kPreadDirect) {
    std::string refusal = try_uring();
    if (refusal.empty()) backend = make_uring_backend(depth, &refusal);
    if (backend != nullptr) {
      mode = ReadMode::kUringDirect;
    } else if (options.mode == ReadMode::kUringDirect) {
      fail(ErrorCode::kUnsupported, "reading by io_uring: refused by the system: {}", refusal);
    } else {
      reasons += fmt::format("{}io_uring refused: {}", reasons.empty() ? "" : "; ", refusal);
    }
  }
  if (backend == nullptr) backend = std::make_unique<PreadBackend>(depth);
  report = mode == ReadMode::kUringDirect   ? fmt::format("io_uring, {} reads at once, O_DIRECT", depth)
           : mode == ReadMode::kPreadDirect ? fmt::format("pread pool of {} threads, O_DIRECT", depth)
                                            : fmt::format("pread pool of {} threads, page cache", depth);
  if (!reasons.empty()) report += fmt::format(" ({})", reasons);
}

DriveReader::DriveReader() : state_(std::make_unique<State>()) {}

std::unique_ptr<DriveReader> DriveReader::open(const std::vector<std::filesystem::path>& files,
                                               const DriveReaderOptions& options) {
  if (options.depth < 1) fail(ErrorCode::kInvalidArgument, "a read depth of {}: at least 1", options.depth);
  std::unique_ptr<DriveReader> reader(new DriveReader);
  State& state = *reader->state_;
  state.depth = options.depth;
  state.files.reserve(files.size());
  for (const auto& path : files) state.files.emplace_back(path, options.mode != ReadMode::kBuffered);
  state.choose_backend(options);
  state.thread = std::thread([&state] { state.run(); });
  return reader;
}

DriveReader::~DriveReader() {
  if (!state_->thread.joinable()) return;  // open() failed
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->backend->wake();
  state_->thread.join();
}

ReadMode DriveReader::mode() const {
  return state_->mode;
}

std::string DriveReader::report() const {
  const std::string buffers = state_->backend->buffer_report();
  return buffers.empty() ? state_->report : state_->report + ", " + buffers;
}

int DriveReader::add_buffer(MutableBytes memory) {
  return state_->backend->add_buffer(memory);
}

void DriveReader::remove_buffer(int buffer) {
  if (buffer >= 0) state_->backend->remove_buffer(buffer);
}

DriveReaderCounters DriveReader::counters() const {
  const std::lock_guard lock(state_->mutex);
  DriveReaderCounters counters = state_->counters;
  if (state_->under_way > 0)
    counters.busy_seconds += std::chrono::duration<double>(Clock::now() - state_->busy_since).count();
  return counters;
}

// ---- requests ----

DriveReader::Id DriveReader::submit(const DriveRead& read, Priority priority, ReadDone done) {
  State& state = *state_;
  TREFOIL_CHECK(read.file < state.files.size() && read.size > 0);
  TREFOIL_CHECK(reinterpret_cast<uintptr_t>(read.into.data()) % kDirectAlignment == 0);
  const uint64_t head = read.offset % kDirectAlignment;
  TREFOIL_CHECK(read.into.size() >= align_up(head + read.size));
  Request request;
  request.file = read.file;
  request.buffer = read.buffer;
  request.read = read;
  request.when_done = std::move(done);
  if (state.files[read.file].is_direct()) {
    request.begin = read.offset - head;
    request.end = request.begin + align_up(head + read.size);
    request.needed = head + read.size;
    request.memory = read.into;
  } else {
    request.begin = read.offset;
    request.end = read.offset + read.size;
    request.needed = read.size;
    request.memory = read.into.subspan(head);
  }
  const std::lock_guard lock(state.mutex);
  const Id id = state.next_id++;
  state.requests.emplace(id, std::move(request));
  (priority == Priority::kNeeded ? state.needed : state.hinted).push_back(id);
  state.begin_waiting();
  return id;
}

void DriveReader::promote(Id id) {
  const std::lock_guard lock(state_->mutex);
  const auto waiting = std::find(state_->hinted.begin(), state_->hinted.end(), id);
  if (waiting == state_->hinted.end()) return;
  state_->hinted.erase(waiting);
  state_->needed.push_back(id);
}

bool DriveReader::cancel(std::span<const Id> ids) {
  const std::lock_guard lock(state_->mutex);
  if (!std::all_of(ids.begin(), ids.end(), [&](Id id) { return state_->waits(id); })) return false;
  for (const Id id : ids) {
    std::erase(state_->needed, id);
    std::erase(state_->hinted, id);
    state_->requests.erase(id);
  }
  return true;
}

bool DriveReader::has_begun(Id id) const {
  const std::lock_guard lock(state_->mutex);
  return !state_->waits(id);
}

bool DriveReader::State::waits(Id id) const {
  const auto is_in = [id](const std::deque<Id>& queue) {
    return std::find(queue.begin(), queue.end(), id) != queue.end();
  };
  return is_in(needed) || is_in(hinted);
}

void DriveReader::State::begin_waiting() {
  const auto may_begin = [&] {
    return needed.empty() ? !hinted.empty() && under_way < (depth + 1) / 2 : under_way < depth;
  };
  while (may_begin()) {
    std::deque<Id>& queue = needed.empty() ? hinted : needed;
    const Id id = queue.front();
    queue.pop_front();
    if (under_way++ == 0) busy_since = Clock::now();
    begin(id, requests.at(id));
  }
}

// The first part of the request that is not there yet. A direct read begins at a whole page, so it may read some bytes
// again.
void DriveReader::State::begin(Id id, Request& request) {
  const DriveFile& file = files[request.file];
  if (file.is_direct()) request.done = align_down(request.done);
  const uint64_t size = std::min(kLargestTransfer, request.end - request.begin - request.done);
  ++counters.reads;
  backend->submit({.id = id,
                   .fd = file.fd(),
                   .offset = request.begin + request.done,
                   .into = request.memory.subspan(request.done, size),
                   .buffer = request.buffer});
}

std::string DriveReader::State::describe(const Request& request, std::string_view why) const {
  const uint64_t head = request.read.offset - request.begin;
  return fmt::format("{}: {} bytes wanted at offset {}, got {}: {}", files[request.file].path().string(),
                     request.read.size, request.read.offset, request.done > head ? request.done - head : 0, why);
}

bool DriveReader::State::take(Request& request, int64_t result, std::string* error) {
  if (result == -EINTR || result == -EAGAIN) {
    if (++request.retries <= kMostRetries) return false;
    *error = describe(request, fmt::format("interrupted {} times", request.retries));
    return true;
  }
  if (result < 0) {
    *error = describe(request, std::generic_category().message(static_cast<int>(-result)));
    return true;
  }
  counters.bytes += static_cast<uint64_t>(result);
  const uint64_t before = request.done;
  request.done += static_cast<uint64_t>(result);
  if (request.done >= request.needed) return true;
  // A direct read that ends inside its first page again and again is at the end of the file, as one of no bytes is.
  const bool no_progress = align_down(request.done) == before && files[request.file].is_direct();
  if (result > 0 && (!no_progress || ++request.retries <= kMostRetries)) {
    if (!no_progress) request.retries = 0;
    return false;
  }
  *error = describe(
      request, fmt::format("the file had {} bytes when it was opened and is shorter now", files[request.file].size()));
  return true;
}

// Its thread: what the backend has done ends or goes on, and what waits begins.
void DriveReader::State::run() {
  std::vector<ReadCompletion> completions;
  std::vector<std::pair<ReadDone, std::string>> ended;
  for (;;) {
    completions.clear();
    backend->wait(completions);
    bool last = false;
    {
      const std::lock_guard lock(mutex);
      for (const ReadCompletion& completion : completions) {
        const auto found = requests.find(completion.id);
        TREFOIL_CHECK(found != requests.end());
        std::string error;
        if (!take(found->second, completion.result, &error)) {
          begin(found->first, found->second);
          continue;
        }
        if (!error.empty()) ++counters.failures;
        ended.emplace_back(std::move(found->second.when_done), std::move(error));
        requests.erase(found);
        if (--under_way == 0) counters.busy_seconds += std::chrono::duration<double>(Clock::now() - busy_since).count();
      }
      if (stop) {
        for (std::deque<Id>* queue : {&needed, &hinted}) {
          for (const Id id : *queue) {
            const Request& request = requests.at(id);
            ended.emplace_back(request.when_done, describe(request, "stopped"));
            requests.erase(id);
          }
          queue->clear();
        }
        last = under_way == 0;
      }
      begin_waiting();
    }
    for (auto& [done, error] : ended) done(error.empty() ? nullptr : &error);
    ended.clear();
    if (last) return;
  }
}

}  // namespace trefoil
