#include "checkpoint/folder_files.h"

#include <gmock/gmock.h>

#include "support/expect_error.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using testing::TempDir;
using testing::write_text;

TEST(SideFiles, AreEverythingButWeightsAndTheIndex) {
  TempDir temp;
  for (const char* name :
       {"config.json", "m.safetensors", "model.safetensors.index.json", ".gitattributes", "code/a.py", ".git/HEAD"}) {
    make_folder((temp.path() / name).parent_path());
    write_text(temp.path() / name, "x");
  }
  fs::create_symlink("config.json", temp.path() / "link.json");
  EXPECT_THAT(side_files_of(temp.path()), ElementsAre(".gitattributes", "code/a.py", "config.json", "link.json"));
}

TEST(SideFiles, OfAFolderThatIsNotThereAreAnError) {
  EXPECT_TRUE(testing::fails_with(ErrorCode::kIo, "cannot list", [] { side_files_of("/nowhere/at/all"); }));
}

}  // namespace
}  // namespace trefoil
