#include "base/system_files.h"

#include <gtest/gtest.h>

#include "support/test_support.h"

namespace trefoil {
namespace {

using testing::TempDir;

void write(const TempDir& root, const std::string& path, const std::string& text) {
  std::filesystem::create_directories((root.path() / path).parent_path());
  testing::write_text(root.path() / path, text);
}

TEST(CgroupCpus, TheTightestQuotaOfTheOwnGroupAndItsAncestorsCounts) {
  const TempDir root;
  write(root, "proc/self/cgroup", "0::/a/b/c\n");
  write(root, "sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpus(root.path()), 0);
  write(root, "sys/fs/cgroup/a/b/cpu.max", "350000 100000\n");
  EXPECT_EQ(cgroup_cpus(root.path()), 3);
  write(root, "sys/fs/cgroup/a/cpu.max", "100000 50000\n");
  EXPECT_EQ(cgroup_cpus(root.path()), 2);
  write(root, "sys/fs/cgroup/a/b/c/cpu.max", "1000 100000\n");
  EXPECT_EQ(cgroup_cpus(root.path()), 1) << "a part of a CPU";
}

TEST(CgroupCpus, InsideANamespaceTheRootsOwnQuotaCounts) {
  const TempDir root;
  write(root, "proc/self/cgroup", "0::/\n");
  write(root, "sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_cpus(root.path()), 4);
  write(root, "proc/self/cgroup", "0::/../sibling\n");
  EXPECT_EQ(cgroup_cpus(root.path()), 4);
}

TEST(CgroupCpus, ReadTheOldHierarchyToo) {
  const TempDir root;
  write(root, "proc/self/cgroup", "12:cpu,cpuacct:/x\n9:memory:/y\n");
  write(root, "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "-1\n");
  write(root, "sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpus(root.path()), 0);
  write(root, "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(cgroup_cpus(root.path()), 2);
}

TEST(CgroupCpus, WhatCannotBeReadIsNoQuota) {
  const TempDir root;
  EXPECT_EQ(cgroup_cpus(root.path()), 0);
  write(root, "proc/self/cgroup", "nonsense\n0::/a\n");
  write(root, "sys/fs/cgroup/a/cpu.max", "many few\n");
  EXPECT_EQ(cgroup_cpus(root.path()), 0);
}

}  // namespace
}  // namespace trefoil
