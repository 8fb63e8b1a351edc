// tests/launch/launcher_place_test.cpp: what torchrun, mpirun and srun set, and what is refused.
#include "launch/launcher_place.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/launch/variables.h"

namespace weft {
namespace {

using testing::Variables;
using testing::with;

std::optional<LauncherPlace> place_of(const Variables& set) {
  return find_launcher_place(testing::reader_of(set));
}

Variables torch(const char* rank = "5", const char* size = "8") {
  return {{"RANK", rank},           {"WORLD_SIZE", size},
          {"LOCAL_RANK", "1"},      {"LOCAL_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
}

Variables open_mpi(const char* rank = "5", const char* size = "8") {
  return {{"OMPI_COMM_WORLD_RANK", rank},
          {"OMPI_COMM_WORLD_SIZE", size},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
}

Variables without(Variables a, const std::string& name) {
  a.erase(name);
  return a;
}

std::string refusal(const Variables& set) {
  try {
    static_cast<void>(place_of(set));
    return "accepted";
  } catch (const UserError& e) {
    return e.what();
  }
}

TEST(LauncherPlace, IsAbsentWhereNobodySetsIt) {
  EXPECT_FALSE(place_of({}));
  EXPECT_FALSE(place_of({{"MASTER_ADDR", "node1"}, {"LOCAL_RANK", "0"}}));
  EXPECT_FALSE(place_of({{"RANK", ""}, {"WORLD_SIZE", ""}}));
}

TEST(LauncherPlace, ReadsTorchrunMpirunAndMpiexec) {
  const Variables mpich = {
      {"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}};
  const std::map<std::string, Variables> all = {
      {"torchrun", torch()}, {"mpirun", open_mpi()}, {"mpiexec", mpich}};
  for (const auto& [launcher, set] : all) {
    const auto place = place_of(set);
    ASSERT_TRUE(place) << launcher;
    EXPECT_EQ(place->launcher, launcher);
    EXPECT_EQ(place->rank, 5);
    EXPECT_EQ(place->size, 8);
    EXPECT_EQ(place->local_rank, 1);
    EXPECT_EQ(place->local_size, 4);
    EXPECT_EQ(place->restart, 0);
    EXPECT_TRUE(place->has_several_nodes());
  }
}

TEST(LauncherPlace, OneRankNeedsNoLocalNumbers) {
  const auto place = place_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  ASSERT_TRUE(place);
  EXPECT_EQ(place->size, 1);
  EXPECT_FALSE(place->has_several_nodes());
}

TEST(LauncherPlace, MissingVariablesAreNamed) {
  EXPECT_EQ(refusal(without(torch(), "RANK")),
            "WORLD_SIZE is set, as torchrun does, but RANK is not");
  EXPECT_EQ(refusal(without(torch(), "WORLD_SIZE")),
            "RANK is set, as torchrun does, but WORLD_SIZE is not");
  EXPECT_EQ(refusal(without(torch(), "LOCAL_RANK")),
            "RANK is set, as torchrun does, but LOCAL_RANK is not");
  EXPECT_EQ(refusal(without(open_mpi(), "OMPI_COMM_WORLD_LOCAL_SIZE")),
            "OMPI_COMM_WORLD_RANK is set, as mpirun does, but OMPI_COMM_WORLD_LOCAL_SIZE is not");
}

TEST(LauncherPlace, WrongNumbersAreRefused) {
  for (const char* bad : {"-1", "1x", " 1", "99999999999", "0x1"}) {
    EXPECT_EQ(refusal(torch(bad)), std::string("RANK=") + bad + " is not a number >= 0");
  }
  EXPECT_EQ(refusal(torch("0", "0")), "WORLD_SIZE=0 is not a number >= 1");
  EXPECT_EQ(refusal(torch("8")),
            "RANK=8 and WORLD_SIZE=8: ranks are numbered from 0, below their number");
  EXPECT_EQ(refusal(with(torch(), {{"LOCAL_RANK", "4"}})),
            "LOCAL_RANK=4 and LOCAL_WORLD_SIZE=4: ranks are numbered from 0, below their number");
  EXPECT_EQ(refusal(with(torch(), {{"LOCAL_WORLD_SIZE", "9"}})),
            "LOCAL_WORLD_SIZE=9 is more than WORLD_SIZE=8");
}

TEST(LauncherPlace, TwoLaunchersMustAgree) {
  EXPECT_EQ(refusal(with(torch(), open_mpi())), "accepted");
  EXPECT_EQ(refusal(with(torch(), open_mpi("4"))),
            "the variables of torchrun make this rank 5 of 8, those of mpirun rank 4 of 8");
  // mpirun starts a torchrun on every node: the ranks are torchrun's.
  const auto place =
      place_of(with(with(torch(), open_mpi("0", "2")), {{"TORCHELASTIC_RUN_ID", "none"}}));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 5);
}

TEST(LauncherPlace, TasksOfSrunAreNoRanks) {
  const Variables srun = {{"PMI_RANK", "1"},        {"PMI_SIZE", "2"},
                          {"SLURM_PROCID", "1"},    {"SLURM_STEP_NUM_TASKS", "2"},
                          {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "1"}};
  EXPECT_FALSE(place_of(srun));
  // mpiexec of MPICH starts its helpers with srun, one per node.
  const auto place = place_of(with(srun, {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}}));
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 5);
}

TEST(LauncherPlace, LaunchesAreToldApart) {
  const auto first = place_of(torch()), other = place_of(with(torch(), {{"MASTER_PORT", "1"}}));
  const auto again = place_of(with(torch(), {{"TORCHELASTIC_RESTART_COUNT", "2"}}));
  EXPECT_NE(first->id, other->id);
  EXPECT_NE(first->id, again->id);
  EXPECT_EQ(again->restart, 2);
  EXPECT_EQ(first->id, place_of(torch("3"))->id);
}

}  // namespace
}  // namespace weft
