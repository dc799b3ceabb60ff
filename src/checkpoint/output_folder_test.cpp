#include "checkpoint/output_folder.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::read_text;
using testing::TempDir;
using testing::write_text;

const std::vector<std::string> kFiles = {"a.safetensors", "code/model.py", "quantization_report.json", "index"};

std::string refusal_of(const fs::path& folder, const fs::path& source, bool overwrite) {
  try {
    OutputFolder output(folder, source, kFiles, overwrite);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

void fill(const fs::path& staging, const std::string& content) {
  for (const std::string& name : kFiles) {
    make_folder((staging / name).parent_path());
    write_text(staging / name, content);
  }
}

void write_output(const fs::path& folder, const fs::path& source, const std::string& content, bool overwrite) {
  OutputFolder output(folder, source, kFiles, overwrite);
  output.begin();
  fill(output.staging(), content);
  output.publish("index");
}

TEST(OutputFolder, PublishesEveryFileAndLeavesNoStaging) {
  TempDir temp;
  const fs::path folder = temp.path() / "new" / "out";
  write_output(folder, temp.path() / "source", "one", false);
  for (const std::string& name : kFiles) EXPECT_EQ(read_text(folder / name), "one") << name;
  EXPECT_FALSE(fs::exists(folder / ".trefoil-partial"));
}

TEST(OutputFolder, AnAbandonedRunLeavesNothing) {
  TempDir temp;
  const fs::path folder = temp.path() / "out";
  {
    OutputFolder output(folder, temp.path() / "source", kFiles, false);
    EXPECT_FALSE(fs::exists(folder)) << "checking must not write";
    output.begin();
    fill(output.staging(), "half");
  }
  EXPECT_FALSE(fs::exists(folder));
}

TEST(OutputFolder, AnAbandonedRunKeepsAFolderThatWasThere) {
  TempDir temp;
  const fs::path folder = temp.path() / "out";
  make_folder(folder);
  {
    OutputFolder output(folder, temp.path() / "source", kFiles, false);
    output.begin();
  }
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST(OutputFolder, RefusesTheSourceAndForeignFiles) {
  TempDir temp;
  const fs::path source = temp.path() / "source";
  make_folder(source);
  EXPECT_THAT(refusal_of(source / ".", source, true), HasSubstr("is the source"));
  const fs::path folder = temp.path() / "out";
  make_folder(folder);
  write_text(folder / "thesis.txt", "years of work");
  EXPECT_THAT(refusal_of(folder, temp.path() / "source", false), HasSubstr("not an earlier output"));
  EXPECT_THAT(refusal_of(folder, temp.path() / "source", false), Not(HasSubstr("--overwrite")));
  EXPECT_THAT(refusal_of(folder, temp.path() / "source", true), HasSubstr("not an output"));
  EXPECT_THAT(refusal_of(folder / "thesis.txt", temp.path() / "source", true), HasSubstr("not a folder"));
}

TEST(OutputFolder, RefusesAFolderInsideOrAroundTheSource) {
  TempDir temp;
  const fs::path source = temp.path() / "model";
  make_folder(source);
  EXPECT_THAT(refusal_of(source / "out", source, true), HasSubstr("lies inside the source"));
  EXPECT_THAT(refusal_of(source / "new" / ".." / "out", source, true), HasSubstr("lies inside the source"));
  EXPECT_THAT(refusal_of(temp.path(), source, true), HasSubstr("lies inside it"));
  fs::create_directory_symlink(source, temp.path() / "link");
  EXPECT_THAT(refusal_of(temp.path() / "link" / "out", source, true), HasSubstr("lies inside the source"));
  EXPECT_EQ(refusal_of(temp.path() / "model-int3", source, true), "") << "a name that only begins alike";
  EXPECT_EQ(refusal_of(temp.path() / "..out", source, true), "");
}

TEST(OutputFolder, OverwritesAnOutputOnlyWhenAskedAndOnlyWhatItReplaces) {
  TempDir temp;
  const fs::path folder = temp.path() / "out";
  write_output(folder, temp.path() / "source", "one", false);
  EXPECT_THAT(refusal_of(folder, temp.path() / "source", false), HasSubstr("--overwrite"));
  write_output(folder, temp.path() / "source", "two", true);
  EXPECT_EQ(read_text(folder / "code/model.py"), "two");
  write_text(folder / "notes.txt", "mine");
  EXPECT_THAT(refusal_of(folder, temp.path() / "source", true), HasSubstr("notes.txt"));
}

TEST(OutputFolder, AnInterruptedRunMayBeStartedAgain) {
  TempDir temp;
  const fs::path folder = temp.path() / "out";
  make_folder(folder / ".trefoil-partial");
  write_text(folder / ".trefoil-partial" / "a.safetensors", "half");
  EXPECT_EQ(refusal_of(folder, temp.path() / "source", false), "");
  EXPECT_EQ(refusal_of(folder, temp.path() / "source", true), "");
}

TEST(OutputFolder, RefusesADiskThatIsTooSmall) {
  TempDir temp;
  const OutputFolder output(temp.path() / "a" / "b", "/nowhere", kFiles, false);
  output.require_space(1);
  EXPECT_THROW(output.require_space(uint64_t{1} << 62), Error);
}

TEST(OutputFolder, SumsReadAsSha256sumWritesThem) {
  TempDir temp;
  write_text(temp.path() / "abc", "abc");
  EXPECT_EQ(sha256_sums(temp.path(), {"abc"}),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  abc\n");
}

}  // namespace
}  // namespace trefoil
