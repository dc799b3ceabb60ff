#include "plan/open_files.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "checkpoint/file.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::TempDir;

TEST(ProcessesWithOpen, FindsThisOneWhileItHasTheFile) {
  TempDir temp;
  testing::write_text(temp.path() / "file", "x");
  EXPECT_THAT(processes_with_open(temp.path() / "file"), IsEmpty());
  {
    const InputFile file(temp.path() / "file");
    EXPECT_THAT(processes_with_open(temp.path() / "file"), ElementsAre(::getpid()));
    fs::remove(temp.path() / "file");
    EXPECT_THAT(processes_with_open(temp.path() / "file"), IsEmpty());
  }
}

// What the processes of others have open only they may see; whose locks there are is told to all.
TEST(ProcessesWithOpen, FindsTheLockOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  TempDir temp;
  fs::permissions(temp.path(), fs::perms::group_exec | fs::perms::others_exec, fs::perm_options::add);
  testing::write_text(temp.path() / "file", "x");
  const auto lock = FileLock::acquire(temp.path() / "file", FileLock::Mode::kExclusive);
  ASSERT_TRUE(lock);
  const pid_t holder = ::getpid(), child = ::fork();
  if (child == 0) {
    if (::setuid(65534) != 0) ::_exit(2);
    const std::vector<int64_t> found = processes_with_open(temp.path() / "file");  // this one too, by inheritance
    ::_exit(std::find(found.begin(), found.end(), holder) != found.end() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace trefoil
