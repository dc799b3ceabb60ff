#include "plan/machine.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/test_support.h"
#include "trefoil/error.h"

namespace trefoil {
namespace {

using testing::TempDir;

constexpr uint64_t kGiB = 1ull << 30;

void write(const TempDir& root, const std::string& path, const std::string& text) {
  std::filesystem::create_directories((root.path() / path).parent_path());
  testing::write_text(root.path() / path, text);
}

void write_meminfo(const TempDir& root) {
  write(root, "proc/meminfo",
        "MemTotal:       16777216 kB\nMemFree:  1 kB\nMemAvailable:    8388608 kB\nSwapTotal: 1024 kB\n");
}

TEST(MachineMemory, ReadsTheKernelsNumbers) {
  const TempDir root;
  write_meminfo(root);
  const MachineMemory memory = read_machine_memory(root.path());
  EXPECT_EQ(memory.total_bytes, 16 * kGiB);
  EXPECT_EQ(memory.available_bytes, 8 * kGiB);
  EXPECT_EQ(memory.swap_bytes, 1u << 20);
  EXPECT_EQ(memory.cgroup_bytes, 0u);
  EXPECT_EQ(memory.limit_bytes(), 16 * kGiB);
}

TEST(MachineMemory, TheLeastLimitOfAllAncestorsCounts) {
  const TempDir root;
  write_meminfo(root);
  write(root, "proc/self/cgroup", "0::/a/b/c\n");
  write(root, "sys/fs/cgroup/a/b/c/memory.max", "max\n");
  write(root, "sys/fs/cgroup/a/b/memory.max", "8589934592\n");
  write(root, "sys/fs/cgroup/a/memory.max", "4294967296\n");
  const MachineMemory memory = read_machine_memory(root.path());
  EXPECT_EQ(memory.cgroup_bytes, 4 * kGiB);
  EXPECT_EQ(memory.cgroup, "/a");
  EXPECT_EQ(memory.limit_bytes(), 4 * kGiB);
}

TEST(MachineMemory, InsideANamespaceTheRootsOwnLimitCounts) {
  const TempDir root;
  write_meminfo(root);
  write(root, "proc/self/cgroup", "0::/\n");
  write(root, "sys/fs/cgroup/memory.max", "2147483648\n");
  EXPECT_EQ(read_machine_memory(root.path()).limit_bytes(), 2 * kGiB);
  write(root, "proc/self/cgroup", "0::/../sibling\n");
  EXPECT_EQ(read_machine_memory(root.path()).limit_bytes(), 2 * kGiB);
}

TEST(MachineMemory, ReadsTheOldHierarchyToo) {
  const TempDir root;
  write_meminfo(root);
  write(root, "proc/self/cgroup", "12:cpu,cpuacct:/x\n9:memory:/docker/abc\n");
  write(root, "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "1073741824\n");
  write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // its "unlimited"
  EXPECT_EQ(read_machine_memory(root.path()).limit_bytes(), kGiB);
}

TEST(MachineMemory, WhatCannotBeReadIsZero) {
  const TempDir root;
  EXPECT_EQ(read_machine_memory(root.path()).limit_bytes(), 0u);
}

TEST(ResidentBytes, GrowWithWhatIsTouchedAndStayUnderThePeak) {
  const uint64_t before = resident_bytes();
  std::vector<char> memory(64 << 20, 1);
  EXPECT_GE(resident_bytes(), before + (32 << 20));
  EXPECT_GE(peak_resident_bytes() + (1 << 20), resident_bytes());
  EXPECT_EQ(memory.back(), 1);
}

TEST(ParseMachine, UnderstandsHowPeopleWriteMachines) {
  const Machine gpus = parse_machine("8x141GB GPU");
  EXPECT_EQ(gpus.devices, 8);
  EXPECT_EQ(gpus.memory_bytes(), 1'128'000'000'000u);
  EXPECT_TRUE(gpus.gpu);
  const Machine server = parse_machine("64-core 768GB");
  EXPECT_EQ(server.cores, 64);
  EXPECT_EQ(server.devices, 1);
  EXPECT_EQ(server.memory_bytes(), 768'000'000'000u);
  EXPECT_FALSE(server.gpu);
  EXPECT_EQ(parse_machine("4 x 80 GB H100 GPUs").memory_bytes(), 320'000'000'000u);
  EXPECT_EQ(parse_machine("1.5TiB").memory_bytes(), 3 * (1ull << 39));
  EXPECT_EQ(parse_machine("128 cores, 2TB server").cores, 128);
}

TEST(ParseMachine, RefusesWhatIsNoMachine) {
  for (const char* text : {"", "GPU", "8x", "8", "64-core", "64GB 32GB", "0x80GB", "1.5x80GB", "8x80", "80 parsecs",
                           "1000000x9000000TB"}) {
    EXPECT_THROW(parse_machine(text), Error) << text;
  }
}

TEST(CommonMachines, AreAllUnderstood) {
  EXPECT_GE(common_machines().size(), 8u);
}

}  // namespace
}  // namespace trefoil
