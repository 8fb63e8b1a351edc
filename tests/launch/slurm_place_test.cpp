// tests/launch/slurm_place_test.cpp: Slurm's variables and its lists of nodes.
#include "launch/slurm_place.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "launch/slurm_node_list.h"
#include "tests/launch/variables.h"

namespace weft {
namespace {

using testing::Variables;
using testing::with;
using SlurmNames = std::vector<std::string>;

// What `scontrol show hostnames` of Slurm 22.05 prints (tests/interop/slurm_interop.py asks it).
TEST(SlurmNodeList, IsExpanded) {
  EXPECT_EQ(expand_node_list("n1"), SlurmNames({"n1"}));
  EXPECT_EQ(expand_node_list("n[01-04,7]"), SlurmNames({"n01", "n02", "n03", "n04", "n7"}));
  EXPECT_EQ(expand_node_list("n[8-11],login"), SlurmNames({"n8", "n9", "n10", "n11", "login"}));
  EXPECT_EQ(expand_node_list("n[098-101]"), SlurmNames({"n098", "n099", "n100", "n101"}));
  EXPECT_EQ(expand_node_list("r[0-1]n[1-2]"), SlurmNames({"r0n1", "r0n2", "r1n1", "r1n2"}));
  EXPECT_EQ(expand_node_list("gpu-a.b_c[3]x"), SlurmNames({"gpu-a.b_c3x"}));
  EXPECT_EQ(expand_node_list("n[0-65535]").size(), 65536u);
}

TEST(SlurmNodeList, WhatIsNoListIsRefused) {
  for (const char* bad : {"",
                          ",",
                          "n1,",
                          ",n1",
                          "n1,,n2",
                          "n[",
                          "n[]",
                          "n[1",
                          "n[1-]",
                          "n[-2]",
                          "n[2-1]",
                          "n[1,]",
                          "n]",
                          "n[1]]",
                          "n 1",
                          "n[a]",
                          "n[0-65536]",
                          "n[0-999999999]",
                          "n[1-9999999999]",
                          "n[0-9999][0-9999]",
                          "n\n1",
                          "n[1-2-3]",
                          "[[1]]",
                          "n;rm"}) {
    EXPECT_THROW(static_cast<void>(expand_node_list(bad)), UserError) << bad;
  }
  EXPECT_THROW(static_cast<void>(expand_node_list(std::string(2000, 'n'))), UserError);
}

std::optional<SlurmPlace> slurm_place_of(const Variables& set) {
  return find_slurm_place(testing::reader_of(set));
}

Variables srun() {
  return {
      {"SLURM_PROCID", "1"},  {"SLURM_STEP_NUM_TASKS", "3"},    {"SLURM_JOB_ID", "17"},
      {"SLURM_STEP_ID", "0"}, {"SLURM_JOB_NODELIST", "n[1-3]"}, {"SLURM_STEP_NODELIST", "n[1-3]"}};
}

TEST(SlurmPlace, IsReadFromATask) {
  const auto place = slurm_place_of(srun());
  ASSERT_TRUE(place);
  EXPECT_EQ(place->task, 1);
  EXPECT_EQ(place->job_id, "17");
  EXPECT_EQ(place->nodes, SlurmNames({"n1", "n2", "n3"}));
  EXPECT_EQ(place->restart, 0);
  const auto again = slurm_place_of(with(srun(), {{"SLURM_RESTART_COUNT", "2"}}));
  EXPECT_EQ(again->restart, 2);
  EXPECT_NE(again->id, place->id);
}

TEST(SlurmPlace, ScriptsAndSingleTasksAreOrdinaryProcesses) {
  EXPECT_FALSE(slurm_place_of({}));
  EXPECT_FALSE(slurm_place_of({{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "1"}}));
  EXPECT_FALSE(slurm_place_of(
      with(srun(),
           {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_NODELIST", "n1"}})));
}

TEST(SlurmPlace, SeveralTasksOnANodeAreRefused) {
  for (const char* tasks : {"6", "2"}) {
    try {
      static_cast<void>(slurm_place_of(with(srun(), {{"SLURM_STEP_NUM_TASKS", tasks}})));
      FAIL() << tasks;
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find("one task per node"), std::string::npos);
      EXPECT_EQ(e.hint(), "srun --ntasks-per-node=1 weft train ...");
    }
  }
}

TEST(SlurmPlace, ANodeHasTheNameThatSlurmGivesIt) {
  const auto name_of = [](const char* text) {
    return slurm_node_name([&](const char* name) {
      return std::string_view(name) == "SLURMD_NODENAME" ? text : nullptr;
    });
  };
  EXPECT_EQ(name_of("n2"), "n2");
  EXPECT_EQ(name_of(nullptr), "");
}

TEST(SlurmPlace, WrongVariablesAreRefused) {
  EXPECT_THROW(slurm_place_of(with(srun(), {{"SLURM_PROCID", "3"}})), UserError);
  EXPECT_THROW(slurm_place_of(with(srun(), {{"SLURM_PROCID", "x"}})), UserError);
  EXPECT_THROW(slurm_place_of(with(srun(), {{"SLURM_STEP_NODELIST", "n[1-"}})), UserError);
  EXPECT_THROW(slurm_place_of(with(srun(), {{"SLURM_STEP_ID", ""}})), UserError);
}

}  // namespace
}  // namespace weft
