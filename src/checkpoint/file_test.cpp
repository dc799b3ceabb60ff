#include "checkpoint/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "base/error.h"
#include "support/expect_error.h"
#include "support/file_size_limit.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using testing::fails_with;
using testing::TempDir;

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string read_string(const InputFile& file, uint64_t offset, size_t size) {
  std::string text(size, '?');
  file.read_at(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(InputFile, ReadsExactlyWhatWasAsked) {
  const TempDir folder;
  testing::write_text(folder.path() / "a", "0123456789");
  const InputFile file(folder.path() / "a");
  EXPECT_EQ(file.size(), 10u);
  EXPECT_EQ(read_string(file, 3, 4), "3456");
  EXPECT_EQ(read_string(file, 10, 0), "");
}

TEST(InputFile, RefusesWhatLiesOutsideNamingPathOffsetAndSizes) {
  const TempDir folder;
  testing::write_text(folder.path() / "a", "0123456789");
  const InputFile file(folder.path() / "a");
  EXPECT_TRUE(
      fails_with(ErrorCode::kIo, "a: 4 bytes wanted at offset 7, the file has 10", [&] { read_string(file, 7, 4); }));
  EXPECT_TRUE(fails_with(ErrorCode::kIo, "offset 11", [&] { read_string(file, 11, 0); }));
  EXPECT_TRUE(fails_with(ErrorCode::kIo, "wanted", [&] { read_string(file, UINT64_MAX, 2); }));
}

TEST(InputFile, AFileThatShrankIsAnError) {
  const TempDir folder;
  testing::write_text(folder.path() / "a", "0123456789");
  const InputFile file(folder.path() / "a");
  fs::resize_file(folder.path() / "a", 5);
  EXPECT_EQ(read_string(file, 1, 4), "1234");
  EXPECT_TRUE(fails_with(ErrorCode::kIo, "shorter now", [&] { read_string(file, 3, 4); }));
}

TEST(InputFile, RefusesFoldersPipesAndAbsence) {
  const TempDir folder;
  EXPECT_TRUE(fails_with(ErrorCode::kUnsupported, "not a regular file", [&] { InputFile file(folder.path()); }));
  EXPECT_TRUE(fails_with(ErrorCode::kNotFound, "nowhere", [&] { InputFile file(folder.path() / "nowhere"); }));
  ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);  // nobody writes: opening it must not wait
  EXPECT_TRUE(
      fails_with(ErrorCode::kUnsupported, "not a regular file", [&] { InputFile file(folder.path() / "pipe"); }));
}

TEST(InputFile, FollowsLinksAsHubCachesUseThem) {
  const TempDir folder;
  testing::write_text(folder.path() / "blob", "content");
  fs::create_symlink("blob", folder.path() / "link");
  EXPECT_EQ(read_text_file(folder.path() / "link"), "content");
}

// More than 2 GiB of addresses over one window of memory, repeated: a target for huge reads that costs 16 MiB.
class FoldedBuffer {
 public:
  explicit FoldedBuffer(size_t size) : size_(size) {
    const int fd = ::memfd_create("window", MFD_CLOEXEC);
    if (fd < 0 || ::ftruncate(fd, kWindow) != 0) throw std::runtime_error("no memory file");
    start_ = static_cast<char*>(::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    for (size_t at = 0; at < size; at += kWindow) {
      ::mmap(start_ + at, std::min(kWindow, size - at), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    }
    ::close(fd);
  }
  ~FoldedBuffer() { ::munmap(start_, size_); }
  MutableBytes bytes() { return std::as_writable_bytes(std::span(start_, size_)); }

 private:
  static constexpr size_t kWindow = size_t{16} << 20;
  char* start_ = nullptr;
  size_t size_ = 0;
};

// One system call moves at most 2^31 - 4096 bytes, so a read of more must be split. The file is sparse: it takes no
// disk.
TEST(InputFile, OneReadMayBeLargerThanTwoGiB) {
  const TempDir folder;
  const fs::path path = folder.path() / "sparse";
  constexpr uint64_t kSize = (uint64_t{1} << 31) + (uint64_t{1} << 20);
  testing::write_text(path, "");
  fs::resize_file(path, kSize - 3);
  std::ofstream(path, std::ios::app | std::ios::binary) << "end";
  const InputFile file(path);
  ASSERT_EQ(file.size(), kSize);
  EXPECT_EQ(read_string(file, kSize - 3, 3), "end");
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer records each of the 2 GiB; reading at an offset beyond them was checked";
#else
  FoldedBuffer whole(kSize);
  file.read_at(0, whole.bytes());
  EXPECT_EQ(std::memcmp(whole.bytes().last(3).data(), "end", 3), 0);
#endif
}

TEST(MappedFile, ShowsTheBytesAndAnEmptyFileIsEmpty) {
  const TempDir folder;
  testing::write_text(folder.path() / "a", "0123456789");
  testing::write_text(folder.path() / "empty", "");
  const MappedFile mapped(folder.path() / "a");
  ASSERT_EQ(mapped.bytes().size(), 10u);
  EXPECT_EQ(std::memcmp(mapped.bytes().data(), "0123456789", 10), 0);
  EXPECT_TRUE(MappedFile(folder.path() / "empty").bytes().empty());
  EXPECT_TRUE(fails_with(ErrorCode::kUnsupported, "not a regular file", [&] { MappedFile file(folder.path()); }));
}

TEST(AtomicFile, AppearsWholeAtCommitAndNotBefore) {
  const TempDir folder;
  AtomicFile file(folder.path() / "a");
  file.write("hello ");
  file.write("world");
  EXPECT_EQ(file.written(), 11u);
  EXPECT_FALSE(fs::exists(folder.path() / "a"));
  file.commit();
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a"));
  EXPECT_EQ(read_text_file(folder.path() / "a"), "hello world");
}

TEST(AtomicFile, WithoutCommitNothingIsLeftAndTheOldFileStays) {
  const TempDir folder;
  write_text_file(folder.path() / "a", "old");
  { AtomicFile(folder.path() / "a").write("new"); }
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a"));
  EXPECT_EQ(read_text_file(folder.path() / "a"), "old");
}

TEST(AtomicFile, OverwritesWhatAKilledRunLeft) {
  const TempDir folder;
  testing::write_text(folder.path() / "a.partial", "a longer remnant of a killed run");
  write_text_file(folder.path() / "a", "new");
  EXPECT_EQ(read_text_file(folder.path() / "a"), "new");
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a"));
}

TEST(AtomicFile, TwoWritersOfOneFileAreKeptApart) {
  const TempDir folder;
  AtomicFile first(folder.path() / "a");
  EXPECT_TRUE(fails_with(ErrorCode::kIo, "another process", [&] { AtomicFile second(folder.path() / "a"); }));
  first.write("first");
  first.commit();
  EXPECT_EQ(read_text_file(folder.path() / "a"), "first");
}

TEST(AtomicFile, ReplacesALinkAndLeavesItsTargetAlone) {
  const TempDir folder;
  testing::write_text(folder.path() / "blob", "shared");
  fs::create_symlink("blob", folder.path() / "a");
  write_text_file(folder.path() / "a", "new");
  EXPECT_EQ(read_text_file(folder.path() / "blob"), "shared");
  EXPECT_FALSE(fs::is_symlink(folder.path() / "a"));
}

TEST(AtomicFile, DoesNotWriteThroughALinkPlantedUnderTheTemporaryName) {
  const TempDir folder;
  testing::write_text(folder.path() / "victim", "untouched");
  fs::create_symlink("victim", folder.path() / "a.partial");
  EXPECT_TRUE(fails_with(ErrorCode::kIo, "a.partial", [&] { write_text_file(folder.path() / "a", "new"); }));
  EXPECT_EQ(read_text_file(folder.path() / "victim"), "untouched");
}

TEST(AtomicFile, AFullDiskIsAnErrorAndLeavesNothing) {
  const TempDir folder;
  const std::string block(1 << 16, 'x');
  {
    const testing::FileSizeLimit limit(100'000);
    EXPECT_TRUE(fails_with(ErrorCode::kIo, "a: cannot write", [&] {
      AtomicFile file(folder.path() / "a");
      file.write(block);
      file.write(block);  // the first part fits, the rest does not
      file.commit();
    }));
  }
  EXPECT_THAT(names_in(folder.path()), ElementsAre());
}

TEST(AtomicFile, AMissingFolderIsNotFoundAndAFolderInTheWayIsAnError) {
  const TempDir folder;
  EXPECT_TRUE(fails_with(ErrorCode::kNotFound, "no/a", [&] { write_text_file(folder.path() / "no" / "a", ""); }));
  fs::create_directory(folder.path() / "a");
  EXPECT_TRUE(fails_with(ErrorCode::kIo, "rename", [&] { write_text_file(folder.path() / "a", "x"); }));
  EXPECT_THAT(names_in(folder.path()), ElementsAre("a"));
}

TEST(ReadTextFile, RefusesFilesOverTheLimitBeforeReadingThem) {
  const TempDir folder;
  testing::write_text(folder.path() / "a", "");
  fs::resize_file(folder.path() / "a", uint64_t{1} << 40);  // sparse
  EXPECT_TRUE(fails_with(ErrorCode::kCorrupt, "1099511627776 bytes", [&] { read_text_file(folder.path() / "a"); }));
}

TEST(CopyFile, CopiesEveryByteAndTheSumsAgree) {
  const TempDir folder;
  std::string text;
  for (int i = 0; i < 700'000; ++i) text += std::to_string(i);  // several chunks of 4 MiB or at least one and a rest
  testing::write_text(folder.path() / "a", text);
  copy_file_atomic(folder.path() / "a", folder.path() / "b");
  EXPECT_EQ(read_text_file(folder.path() / "b"), text);
  EXPECT_EQ(sha256_of_file(folder.path() / "a"), sha256_of_file(folder.path() / "b"));
  testing::write_text(folder.path() / "abc", "abc");
  EXPECT_EQ(sha256_of_file(folder.path() / "abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(MakeFolder, MakesParentsAndRefusesAFileInTheWay) {
  const TempDir folder;
  make_folder(folder.path() / "x" / "y");
  make_folder(folder.path() / "x" / "y");
  EXPECT_TRUE(fs::is_directory(folder.path() / "x" / "y"));
  testing::write_text(folder.path() / "file", "");
  EXPECT_TRUE(fails_with(ErrorCode::kIo, "file", [&] { make_folder(folder.path() / "file"); }));
  EXPECT_TRUE(fails_with(ErrorCode::kIo, "below", [&] { make_folder(folder.path() / "file" / "below"); }));
}

}  // namespace
}  // namespace trefoil
