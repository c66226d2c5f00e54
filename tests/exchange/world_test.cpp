// Which group a process belongs to.
#include "exchange/world.h"

#include <gtest/gtest.h>

#include <map>

#include "core/json.h"
#include "core/launcher_variables.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

using exchange::World;
using Variables = std::map<std::string, std::string>;

std::optional<World> world_in(const Variables& variables) {
  return exchange::world_from([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

// Returns, for example, "gloo 1/4 tcp://host:port name".
std::string text_of(const std::optional<World>& world) {
  if (!world) return "none";
  return cat(world->engine, " ", world->rank, "/", world->size, " ", world->rendezvous, " ",
             world->name);
}

const Variables kSlurm{{"SLURM_PROCID", "2"},
                       {"SLURM_NTASKS", "8"},
                       {"SLURM_JOB_ID", "4123456"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NODELIST", "gpu[07-09,12]"}};

Variables with(Variables all, const Variables& more) {
  for (const auto& [name, value] : more) all[name] = value;
  return all;
}

TEST(World, IsWhatTheLauncherSays) {
  const Variables torchrun{
      {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};
  const Variables open_mpi{{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}};
  const Variables mpich{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}};
  const Variables own{
      {"ECHOTRAIN_RANK", "0"}, {"ECHOTRAIN_SIZE", "2"}, {"ECHOTRAIN_RENDEZVOUS", "file:/shared"}};
  const struct {
    Variables variables;
    std::string world;
  } rows[] = {
      {{}, "none"},
      {{{"RANK", "0"}}, "none"},
      {own, "gloo 0/2 file:/shared world"},
      {with(own, {{"ECHOTRAIN_ENGINE", "mpi"}, {"ECHOTRAIN_GROUP", "attempt2"}}),
       "mpi 0/2 file:/shared attempt2"},
      {torchrun, "gloo 3/4 tcp://10.0.0.1:29501 world"},
      {with(torchrun, {{"TORCHELASTIC_RUN_ID", "job"}, {"TORCHELASTIC_RESTART_COUNT", "2"}}),
       "gloo 3/4 tcp://10.0.0.1:29501 job.2"},
      {with(torchrun, own), "gloo 0/2 file:/shared world"},
      {open_mpi, "mpi-openmpi 1/2  world"},
      {mpich, "mpi-mpich 0/2  world"},
      {kSlurm, "gloo 2/8 tcp://gpu07:23456 job4123456.0."},
      {with(kSlurm, {{"SLURM_STEP_NODELIST", "login,gpu1"}}),
       "gloo 2/8 tcp://login:23456 job4123456.0."},
      {with(kSlurm, {{"SLURM_STEP_NODELIST", "n[1,3]-ib"}}),
       "gloo 2/8 tcp://n1-ib:23456 job4123456.0."},
      {with(kSlurm, {{"SLURM_RESTART_COUNT", "1"}}), "gloo 2/8 tcp://gpu07:23456 job4123456.0.1"},
      {with(kSlurm, {{"SLURM_STEP_ID", ""}}), "none"},  // a batch script
      {with(kSlurm, torchrun), "gloo 3/4 tcp://10.0.0.1:29501 world"},
      {with(kSlurm, open_mpi), "mpi-openmpi 1/2  world"},
  };
  for (const auto& row : rows) EXPECT_EQ(text_of(world_in(row.variables)), row.world);
}

std::string half_said(const Variables& variables) {
  return exchange::half_said_by_launcher([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(World, SaysWhichVariablesAreMissing) {
  EXPECT_EQ(half_said({}), "");
  EXPECT_EQ(half_said({{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}), "") << "they name no rank";
  EXPECT_EQ(half_said({{"RANK", "1"}, {"MASTER_ADDR", "a"}}),
            "the environment has RANK, MASTER_ADDR, and lacks WORLD_SIZE, MASTER_PORT");
  EXPECT_EQ(half_said({{"OMPI_COMM_WORLD_SIZE", "2"}}),
            "the environment has OMPI_COMM_WORLD_SIZE, and lacks OMPI_COMM_WORLD_RANK");
  EXPECT_NE(half_said({{"SLURM_PROCID", "0"}, {"SLURM_JOB_ID", "1"}}).find("'srun' starts"),
            std::string::npos);
}

// Returns, for example, "1/4 2 OMPI_COMM_WORLD_RANK".
std::string launch_text(const Variables& variables) {
  const auto launch = launch_in([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
  if (!launch) return "none";
  return cat(launch->rank, "/", launch->size, " ", launch->local_rank, " ",
             launch->variables->rank);
}

TEST(World, IsKnownInPartWithoutAPlaceToMeet) {
  EXPECT_EQ(launch_text({{"RANK", "1"}, {"WORLD_SIZE", "4"}}), "1/4 -1 RANK");
  EXPECT_EQ(launch_text({{"OMPI_COMM_WORLD_RANK", "3"},
                         {"OMPI_COMM_WORLD_SIZE", "4"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}}),
            "3/4 1 OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(launch_text(kSlurm), "2/8 -1 SLURM_PROCID");
  EXPECT_EQ(launch_text({{"RANK", "one"}, {"WORLD_SIZE", "4"}}), "none");
  EXPECT_EQ(launch_text({{"RANK", "1"}}), "none");
  const Variables shell{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}};
  EXPECT_EQ(launch_text(shell), "none") << "a batch script";
  const Variables interactive =
      with(shell, {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  EXPECT_EQ(launch_text(interactive).substr(0, 3), "0/1") << "salloc's shell, which is one process";
}

TEST(World, ListensWhereGlooIsToldTo) {
  const auto world =
      world_in({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"GLOO_SOCKET_IFNAME", "ib0"}});
  EXPECT_EQ(world->interface, "ib0");
}

TEST(World, SaysWhichVariableMakesNoSense) {
  EXPECT_EQ(error_text([] {
              world_in({{"PMI_RANK", "one"}, {"PMI_SIZE", "2"}});
            }),
            "the environment variable PMI_RANK is 'one', which is not a number of ranks");
  EXPECT_EQ(error_text([] {
              world_in({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}});
            }),
            "the environment variable PMI_RANK is 2, and PMI_SIZE is 2: ranks are numbered from 0 "
            "to the size minus 1");
  EXPECT_EQ(error_text([] {
              world_in({{"PMI_RANK", "0"}, {"PMI_SIZE", "2000000000"}});
            }),
            "the environment variable PMI_SIZE is 2000000000, and a group has at most 1000000 "
            "ranks");
  EXPECT_NE(
      error_text([] {
        world_in(
            {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "65535"}});
      }).find("not a port below 65535"),
      std::string::npos);
}

TEST(World, IsReadFromJson) {
  const World world = exchange::world_of(Json::parse(
      R"({"rank": 1, "size": 2, "rendezvous": "file:/x", "interface": "eth0", "timeout": 5, "name": "n"})"));
  EXPECT_EQ(text_of(world), "gloo 1/2 file:/x n");
  EXPECT_EQ(world.timeout_s, 5);
  EXPECT_EQ(world.interface, "eth0");
  EXPECT_NE(error_text([] {
              exchange::world_of(Json::parse(R"({"rank": 1, "size": 2, "rendezvos": ""})"));
            }).find("did you mean 'rendezvous'"),
            std::string::npos);
}

TEST(World, NamesEnginesThatThereAre) {
  World world;
  world.engine = "nccl";
  EXPECT_NE(error_text([&] { exchange::open_group(world); }).find("no engine 'nccl'"),
            std::string::npos);
  world.engine = "/nowhere/engine.so";
  EXPECT_NE(error_text([&] { exchange::open_group(world); }).find("/nowhere/engine.so"),
            std::string::npos);
  world.engine = "mpi-openmpi", world.engines = "/nowhere";
  EXPECT_NE(
      error_text([&] { exchange::open_group(world); }).find("Install Open MPI (libopenmpi-dev)"),
      std::string::npos);
}

TEST(World, OfOneRankNeedsNoEngine) {
  World world;
  world.engines = "/nowhere";
  exchange::Group group = exchange::open_group(world);
  group.barrier();
  EXPECT_EQ(group.size(), 1);
}

}  // namespace
}  // namespace etr::test
