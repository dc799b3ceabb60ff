#include "stream/drive_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <future>

#include "base/error.h"
#include "base/page_buffer.h"
#include "base/splitmix64.h"
#include "stream/direct_alignment.h"
#include "stream/faulty_test_backend.h"
#include "support/expect_error.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using ::testing::AllOf;
using testing::fails_with;
using testing::FaultyDrive;
using ::testing::HasSubstr;
using testing::ReadFault;
using testing::TempDir;
namespace fs = std::filesystem;

constexpr ReadMode kModes[] = {ReadMode::kUringDirect, ReadMode::kPreadDirect, ReadMode::kBuffered};

std::string random_text(size_t size) {
  SplitMix64 random(size);
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random.next());
  return text;
}

// A file of 100,001 bytes, so that its last page is not whole.
class DriveReaderTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kSize = 100001;

  fs::path path() const { return folder_.path() / "data"; }

  void SetUp() override { testing::write_text(path(), content_); }

  std::unique_ptr<DriveReader> open(ReadMode mode) const { return DriveReader::open({path()}, {.mode = mode}); }
  std::unique_ptr<DriveReader> open_faulty(ReadMode mode, FaultyDrive::Plan plan) {
    drive_.set_plan(std::move(plan));
    return DriveReader::open(
        {path()}, {.mode = mode, .depth = 4, .make_backend = [this](int depth) { return drive_.make(depth); }});
  }

  // The error, empty when it went well, and then the bytes are compared.
  std::string read(DriveReader& reader, uint64_t offset, uint64_t size) const {
    PageBuffer memory(align_up(offset % kDirectAlignment + size));
    const int buffer = reader.add_buffer(memory.bytes());
    std::promise<std::string> done;
    std::future<std::string> result = done.get_future();
    reader.submit({.file = 0, .offset = offset, .size = size, .into = memory.bytes(), .buffer = buffer},
                  DriveReader::Priority::kNeeded,
                  [&](const std::string* error) { done.set_value(error == nullptr ? "" : *error); });
    if (result.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      ADD_FAILURE() << "the read does not come back";
      std::abort();  // its memory must not go while it may still be written
    }
    reader.remove_buffer(buffer);
    const std::string error = result.get();
    const std::byte* first = memory.bytes().data() + offset % kDirectAlignment;
    if (error.empty()) {
      EXPECT_EQ(std::memcmp(first, content_.data() + offset, size), 0) << offset << " " << size;
    }
    return error;
  }

  TempDir folder_;
  std::string content_ = random_text(kSize);
  FaultyDrive drive_;
};

TEST_F(DriveReaderTest, EveryModeReadsTheSameBytesAtAnyOffset) {
  for (const ReadMode mode : kModes) {
    std::unique_ptr<DriveReader> reader;
    try {
      reader = open(mode);
    } catch (const Error& error) {  // a system without io_uring or O_DIRECT says so and is no failure
      ASSERT_EQ(error.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(error.what(), HasSubstr("refused"));
      continue;
    }
    EXPECT_EQ(reader->mode(), mode);
    for (const uint64_t offset : {0, 1, 4095, 4096, 4097, 99999}) {
      for (const uint64_t size : {1, 2, 4096, 8193, 50000}) {
        if (offset + size <= kSize) {
          EXPECT_EQ(read(*reader, offset, size), "") << reader->report();
        }
      }
    }
    EXPECT_EQ(read(*reader, 0, kSize), "");
    EXPECT_EQ(reader->counters().failures, 0u);
    EXPECT_GE(reader->counters().bytes, kSize);
  }
}

TEST_F(DriveReaderTest, ReportsTheModeAndHowManyAtOnce) {
  const auto reader = DriveReader::open({path()}, {.mode = ReadMode::kBuffered, .depth = 3});
  EXPECT_EQ(reader->report(), "pread pool of 3 threads, page cache");
  for (const ReadMode mode : kModes) EXPECT_EQ(parse_read_mode(to_string(mode)), mode);
  EXPECT_FALSE(parse_read_mode("mmap"));
}

TEST_F(DriveReaderTest, RefusesWhatIsNoRegularFile) {
  EXPECT_TRUE(fails_with(ErrorCode::kNotFound, "nothing", [&] { DriveReader::open({folder_.path() / "nothing"}); }));
  EXPECT_TRUE(fails_with(ErrorCode::kUnsupported, "not a regular file", [&] { DriveReader::open({folder_.path()}); }));
}

// /proc has files without O_DIRECT on every system.
TEST_F(DriveReaderTest, AFileWithoutDirectReadsFallsBackAndSaysSo) {
  const std::vector<fs::path> files = {path(), "/proc/self/status"};
  const auto reader = DriveReader::open(files);
  EXPECT_THAT(reader->report(), HasSubstr("O_DIRECT refused by"));
  EXPECT_EQ(read(*reader, 5, 70000), "");
  EXPECT_TRUE(fails_with(ErrorCode::kUnsupported, "O_DIRECT refused by",
                         [&] { DriveReader::open(files, {.mode = ReadMode::kPreadDirect}); }));
}

TEST_F(DriveReaderTest, ShortReadsAreContinued) {
  for (const ReadMode mode : {ReadMode::kPreadDirect, ReadMode::kBuffered}) {
    const auto reader = open_faulty(mode, [](int n, const ReadOperation&) {
      return ReadFault{.at_most = n % 2 == 0 ? size_t{4096} : size_t{8192}};
    });
    EXPECT_EQ(read(*reader, 4097, 70000), "");
    EXPECT_GT(reader->counters().reads, 10u);
    // A direct read that came to an odd place goes on from the page before it.
    drive_.set_plan([](int n, const ReadOperation&) { return n == 0 ? ReadFault{.at_most = 9999} : ReadFault{}; });
    EXPECT_EQ(read(*reader, 3, 30000), "");
  }
}

TEST_F(DriveReaderTest, InterruptionsAreRepeatedAndNotForEver) {
  for (const int error : {EINTR, EAGAIN}) {
    const auto reader = open_faulty(ReadMode::kBuffered, [error](int n, const ReadOperation&) {
      return n < 5 ? ReadFault{.error = error} : ReadFault{};
    });
    EXPECT_EQ(read(*reader, 10, 1000), "");
    drive_.set_plan([error](int, const ReadOperation&) { return ReadFault{.error = error}; });
    EXPECT_THAT(read(*reader, 10, 1000), HasSubstr("interrupted"));
  }
}

TEST_F(DriveReaderTest, AnErrorNamesFileOffsetWantedAndGot) {
  const auto reader = open_faulty(ReadMode::kBuffered, [](int n, const ReadOperation&) {
    return n == 0 ? ReadFault{.at_most = 300} : ReadFault{.error = EIO};
  });
  EXPECT_THAT(read(*reader, 77, 1000), AllOf(HasSubstr(path().string()), HasSubstr("1000 bytes wanted at offset 77"),
                                             HasSubstr("got 300"), HasSubstr("Input/output error")));
  drive_.set_plan([](int, const ReadOperation&) { return ReadFault(); });
  EXPECT_EQ(read(*reader, 77, 1000), "");
  EXPECT_EQ(reader->counters().failures, 1u);
}

TEST_F(DriveReaderTest, AFileThatShrinksIsAnErrorInEveryMode) {
  for (const ReadMode mode : {ReadMode::kAuto, ReadMode::kPreadDirect, ReadMode::kBuffered}) {
    for (const uint64_t left : {50001, 8192, 0}) {
      testing::write_text(path(), content_);
      const auto reader = open(mode);
      fs::resize_file(path(), left);
      EXPECT_THAT(read(*reader, 40000, 60001), HasSubstr("the file had 100001 bytes when it was opened and is shorter"))
          << reader->report() << " " << left;
      if (left > 5000) {
        EXPECT_EQ(read(*reader, 10, 5000), "");  // what is there can still be read
      }
    }
  }
}

TEST_F(DriveReaderTest, NeededReadsOvertakeHintedOnesAndCanceledOnesNeverBegin) {
  std::mutex mutex;
  std::vector<uint64_t> order;
  drive_.set_plan([&](int, const ReadOperation& operation) {
    const std::lock_guard lock(mutex);
    order.push_back(operation.offset);
    return ReadFault{.is_late = operation.offset == 0};
  });
  const auto reader = DriveReader::open(
      {path()}, {.mode = ReadMode::kBuffered, .depth = 1, .make_backend = [&](int d) { return drive_.make(d); }});
  PageBuffer memory(5 * kDirectAlignment);
  std::promise<void> last;
  const auto submit = [&](uint64_t page, DriveReader::Priority priority, ReadDone done) {
    return reader->submit({.file = 0,
                           .offset = page * kDirectAlignment,
                           .size = 100,
                           .into = memory.bytes().subspan(page * kDirectAlignment, kDirectAlignment)},
                          priority, std::move(done));
  };
  const auto nothing = [](const std::string*) {};
  submit(0, DriveReader::Priority::kNeeded, nothing);  // holds the only place
  submit(1, DriveReader::Priority::kHinted, [&](const std::string*) { last.set_value(); });
  const DriveReader::Id canceled = submit(2, DriveReader::Priority::kHinted, [](const std::string*) { FAIL(); });
  const DriveReader::Id promoted = submit(3, DriveReader::Priority::kHinted, nothing);
  const DriveReader::Id needed = submit(4, DriveReader::Priority::kNeeded, nothing);
  EXPECT_FALSE(reader->has_begun(needed));
  reader->promote(promoted);
  EXPECT_TRUE(reader->cancel(std::vector{canceled}));
  EXPECT_FALSE(reader->cancel(std::vector{canceled, promoted}));
  drive_.release();
  ASSERT_EQ(last.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  const std::lock_guard lock(mutex);
  EXPECT_THAT(order, ::testing::ElementsAre(0, 4 * 4096, 3 * 4096, 1 * 4096));
}

TEST_F(DriveReaderTest, StoppingEndsWhatWaits) {
  int ended = 0;
  {
    const auto reader =
        open_faulty(ReadMode::kBuffered, [](int, const ReadOperation&) { return ReadFault{.is_late = true}; });
    static PageBuffer memory(16 * kDirectAlignment);
    for (uint64_t page = 0; page < 16; ++page) {
      reader->submit({.file = 0,
                      .offset = page * kDirectAlignment,
                      .size = 4096,
                      .into = memory.bytes().subspan(page * kDirectAlignment, kDirectAlignment)},
                     DriveReader::Priority::kNeeded, [&](const std::string*) { ++ended; });
    }
  }
  EXPECT_EQ(ended, 16);
}

}  // namespace
}  // namespace trefoil
