#include "plan/open_files.h"

#include <gmock/gmock.h>
#include <unistd.h>

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

}  // namespace
}  // namespace trefoil
