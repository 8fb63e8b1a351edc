// launch/launcher_place.cpp: the variables of torchrun, Open MPI and MPICH.
#include "launch/launcher_place.h"

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "launch/whole_number.h"

namespace weft {
namespace {

struct Names {
  const char *launcher, *rank, *size, *local_rank, *local_size;
};

constexpr Names kTorch{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kOpenMpi{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                         "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kMpich{"mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

int read(const Environment& get, const Names& names, const char* name, int least) {
  const char* text = find_variable(get, name);
  if (text == nullptr) {
    const char* other = std::strcmp(name, names.rank) == 0 ? names.size : names.rank;
    throw UserError(
        fmt::format("{} is set, as {} does, but {} is not", other, names.launcher, name),
        fmt::format("start weft with {}, which sets both, or unset {}", names.launcher, other));
  }
  const auto value = whole_number(text);
  require(value && *value >= least, "{}={} is not a number >= {}", name, text, least);
  return *value;
}

void check_inside(const char* name, int value, const char* bound_name, int bound) {
  require(value < bound, "{}={} and {}={}: ranks are numbered from 0, below their number", name,
          value, bound_name, bound);
}

std::optional<LauncherPlace> find_place(const Environment& get, const Names& names) {
  if (!find_variable(get, names.rank) && !find_variable(get, names.size)) return std::nullopt;
  LauncherPlace place;
  place.launcher = names.launcher;
  place.size_variable = names.size;
  place.rank = read(get, names, names.rank, 0);
  place.size = read(get, names, names.size, 1);
  check_inside(names.rank, place.rank, names.size, place.size);
  if (place.size == 1) return place;
  place.local_rank = read(get, names, names.local_rank, 0);
  place.local_size = read(get, names, names.local_size, 1);
  check_inside(names.local_rank, place.local_rank, names.local_size, place.local_size);
  require(place.local_size <= place.size, "{}={} is more than {}={}", names.local_size,
          place.local_size, names.size, place.size);
  return place;
}

// Of whatever the launcher sets that differs between launches.
std::string launch_id(const Environment& get) {
  std::string id;
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
                           "TORCHELASTIC_RESTART_COUNT", "PMIX_NAMESPACE", "PMI_JOBID",
                           "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID", "SLURM_RESTART_COUNT"}) {
    if (const char* value = find_variable(get, name)) id += fmt::format("{}={} ", name, value);
  }
  return id;
}

// srun sets PMI_* too, where it serves MPI programs: then the process is Slurm's task.
bool is_of_srun(const Environment& get, const LauncherPlace& place) {
  const char *task = find_variable(get, "SLURM_PROCID"),
             *tasks = find_variable(get, "SLURM_STEP_NUM_TASKS");
  return task && tasks && whole_number(task) == place.rank && whole_number(tasks) == place.size;
}

void check_same(const LauncherPlace& a, const LauncherPlace& b) {
  if (a.rank == b.rank && a.size == b.size) return;
  throw UserError(
      fmt::format("the variables of {} make this rank {} of {}, those of {} rank {} of {}",
                  a.launcher, a.rank, a.size, b.launcher, b.rank, b.size),
      "unset those of the launcher that does not start the ranks");
}

}  // namespace

const char* find_variable(const Environment& get, const char* name) {
  const char* text = get(name);
  return text != nullptr && *text != '\0' ? text : nullptr;
}

std::optional<LauncherPlace> find_launcher_place(const Environment& get) {
  auto torch = find_place(get, kTorch);
  auto found = torch;
  // torchrun may itself be started by mpirun, once per node.
  if (!torch || !find_variable(get, "TORCHELASTIC_RUN_ID")) {
    auto mpi = find_place(get, kOpenMpi);
    if (!mpi) mpi = find_place(get, kMpich);
    if (mpi && mpi->launcher == kMpich.launcher && is_of_srun(get, *mpi)) mpi.reset();
    if (torch && mpi) check_same(*torch, *mpi);
    if (!found) found = std::move(mpi);
  }
  if (!found) return std::nullopt;
  if (const char* count = find_variable(get, "TORCHELASTIC_RESTART_COUNT"))
    found->restart = whole_number(count).value_or(0);
  found->id = launch_id(get);
  return found;
}

std::optional<LauncherPlace> find_launcher_place() {
  return find_launcher_place([](const char* name) { return std::getenv(name); });
}

}  // namespace weft
