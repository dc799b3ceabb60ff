#include "trefoil/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "plan/plan_test_data.h"

namespace trefoil {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::Not;

void write(const testing::TempDir& root, const std::string& path, const std::string& text) {
  std::filesystem::create_directories((root.path() / path).parent_path());
  testing::write_text(root.path() / path, text);
}

auto message(const std::string& part) {
  return Contains(Field(&Finding::message, HasSubstr(part)));
}

TEST(Doctor, DescribesThisMachine) {
  const DoctorReport report = doctor({});
  EXPECT_GE(report.cpus_usable, 1);
  EXPECT_GE(report.cpus_online, report.cpus_usable);
  EXPECT_GT(report.memory_bytes, 0u);
  EXPECT_GT(report.disk_total_bytes, 0u);
  EXPECT_TRUE(report.ok());
  EXPECT_THAT(to_text(report), AllOf(HasSubstr("memory"), HasSubstr("disk"), HasSubstr(report.isa_detected)));
}

TEST(Doctor, ReadsWhatTheKernelSays) {
  const testing::TempDir root;
  write(root, "proc/cpuinfo", "processor\t: 0\nmodel name\t: Test CPU 9000\nflags\t\t: fpu avx2 fma sse avx512f\n");
  write(root, "proc/meminfo", "MemTotal: 100000000 kB\nMemAvailable: 1000000 kB\n");
  write(root, "proc/self/cgroup", "0::/box\n");
  write(root, "sys/fs/cgroup/box/memory.max", "51200000000\n");
  write(root, "sys/devices/system/node/online", "0-1,3\n");
  DoctorOptions options;
  options.root = root.path();
  const DoctorReport report = doctor(options);
  EXPECT_EQ(report.cpu_model, "Test CPU 9000");
  EXPECT_THAT(report.cpu_flags, ElementsAre("avx2", "fma", "avx512f"));
  EXPECT_EQ(report.numa_nodes, 3);
  EXPECT_EQ(report.cgroup_limit_bytes, 51'200'000'000u);
  EXPECT_THAT(report.findings, message("cgroup /box allows"));
  EXPECT_THAT(report.findings, message("of memory are available"));
  EXPECT_THAT(report.findings, message("3 NUMA nodes"));
}

TEST(Doctor, NothingReadableIsSaidNotGuessed) {
  const testing::TempDir root;
  DoctorOptions options;
  options.root = root.path();
  options.folder = root.path() / "absent";
  const DoctorReport report = doctor(options);
  EXPECT_THAT(report.findings, message("the size of memory cannot be read"));
  EXPECT_THAT(report.findings, message("absent is not there"));
  EXPECT_THAT(to_text(report), HasSubstr("unknown"));
}

TEST(Doctor, RunsEveryCheckAndReportsTheFailedOnes) {
  int runs = 0;
  DoctorOptions options;
  options.checks = {{"bad kernel",
                     [&] {
                       ++runs;
                       throw Error(ErrorCode::kCheckFailed, "row 3 differs");
                     }},
                    {"good kernel", [&] { ++runs; }}};
  options.libraries = {{"OpenBLAS", "0.3.21"}};
  const DoctorReport report = doctor(options);
  EXPECT_EQ(runs, 2);
  EXPECT_FALSE(report.ok());
  EXPECT_EQ(report.findings.front().severity, Finding::Severity::kError);
  EXPECT_THAT(report.findings.front().message, HasSubstr("bad kernel: row 3 differs"));
  EXPECT_FALSE(report.checks[0].passed);
  EXPECT_TRUE(report.checks[1].passed);
  EXPECT_THAT(to_text(report), AllOf(HasSubstr("FAILED: row 3 differs"), HasSubstr("0.3.21")));
  const auto json = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["checks"][1]["passed"], true);
}

TEST(Doctor, AFolderInMemoryIsWarnedAbout) {
  if (testing::read_text("/proc/self/mounts").find(" /dev/shm tmpfs ") == std::string::npos) {
    GTEST_SKIP() << "/dev/shm is no tmpfs here";
  }
  DoctorOptions options;
  options.folder = "/dev/shm";
  const DoctorReport report = doctor(options);
  EXPECT_TRUE(report.disk_is_memory);
  EXPECT_THAT(report.findings, message("lies in memory"));
  options.folder = "/proc";
  EXPECT_FALSE(doctor(options).disk_is_memory);
}

}  // namespace
}  // namespace trefoil
