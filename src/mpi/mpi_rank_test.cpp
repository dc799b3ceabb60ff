// Only what needs no MPI; tests/e2e/mpi_test.py starts ranks.
#include "trefoil/mpi_rank.h"

#include <gmock/gmock.h>

#include <cstdlib>

#include "trefoil/error.h"

namespace trefoil {
namespace {

using ::testing::HasSubstr;

std::string refusal_of(const std::string& which) {
  try {
    MpiRank::join(which);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(MpiRankTest, AutoGoesByTheLaunchersVariables) {
  ::unsetenv("OMPI_COMM_WORLD_SIZE");
  ::unsetenv("PMI_SIZE");
  EXPECT_THAT(refusal_of("auto"), HasSubstr("neither OMPI_COMM_WORLD_SIZE nor PMI_SIZE is set"));
  ::setenv("PMI_SIZE", "2", 1);
  EXPECT_THAT(refusal_of("auto"), HasSubstr("--mpi mpich"));
  ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
  EXPECT_THAT(refusal_of("auto"), HasSubstr("--mpi openmpi"));
}

// No module lies beside this test.
TEST(MpiRankTest, AMissingModuleIsNamedWithThePlacesThatWereSearched) {
  EXPECT_THAT(refusal_of("openmpi"), HasSubstr("no such module (looked for /"));
  EXPECT_THAT(refusal_of("openmpi"), HasSubstr("lib/trefoil/trefoil_mpi_openmpi.so"));
}

}  // namespace
}  // namespace trefoil
