// launch/slurm_place.cpp: the variables of srun.
#include "launch/slurm_place.h"

#include <cstdlib>

#include "base/error.h"
#include "base/printable.h"
#include "launch/slurm_node_list.h"
#include "launch/whole_number.h"

namespace weft {
namespace {

const char* need(const Environment& get, const char* name) {
  const char* text = find_variable(get, name);
  require(text != nullptr, "SLURM_PROCID is set, as srun does, but {} is not", name);
  return text;
}

int number(const Environment& get, const char* name, int least) {
  const char* text = need(get, name);
  const auto value = whole_number(text);
  require(value && *value >= least, "{}={} is not a number >= {}", name, text, least);
  return *value;
}

const char* node_list(const Environment& get) {
  const char* of_step = find_variable(get, "SLURM_STEP_NODELIST");
  return of_step ? of_step : need(get, "SLURM_JOB_NODELIST");
}

void check_tasks(int tasks, const SlurmPlace& place) {
  const auto nodes = static_cast<int>(place.nodes.size());
  if (tasks != nodes)
    throw UserError(
        fmt::format("srun has started {} tasks on {} node{}: weft is one task per node, which "
                    "starts that node's ranks",
                    tasks, nodes, nodes == 1 ? "" : "s"),
        "srun --ntasks-per-node=1 weft train ...");
  require(place.task < tasks, "SLURM_PROCID={} and SLURM_STEP_NUM_TASKS={} contradict each other",
          place.task, tasks);
}

}  // namespace

std::optional<SlurmPlace> find_slurm_place(const Environment& get) {
  // The script of a job has SLURM_PROCID too, but no step.
  if (!find_variable(get, "SLURM_PROCID") || !find_variable(get, "SLURM_STEP_NUM_TASKS"))
    return std::nullopt;
  const int tasks = number(get, "SLURM_STEP_NUM_TASKS", 1);
  SlurmPlace place;
  place.nodes = expand_node_list(node_list(get));
  if (tasks == 1 && place.nodes.size() == 1) return std::nullopt;
  place.job_id = need(get, "SLURM_JOB_ID");
  place.task = number(get, "SLURM_PROCID", 0);
  place.restart = slurm_restarts(get);
  check_tasks(tasks, place);
  place.id = fmt::format("SLURM_JOB_ID={} SLURM_STEP_ID={} SLURM_RESTART_COUNT={}", place.job_id,
                         need(get, "SLURM_STEP_ID"), place.restart);
  return place;
}

std::optional<SlurmPlace> find_slurm_place() {
  return find_slurm_place([](const char* name) { return std::getenv(name); });
}

std::string slurm_node_name(const Environment& get) {
  const char* name = find_variable(get, "SLURMD_NODENAME");
  return name ? printable_line(name) : "";
}

std::string slurm_node_name() {
  return slurm_node_name([](const char* name) { return std::getenv(name); });
}

int slurm_restarts(const Environment& get) {
  return find_variable(get, "SLURM_RESTART_COUNT") ? number(get, "SLURM_RESTART_COUNT", 0) : 0;
}

int slurm_restarts() {
  return slurm_restarts([](const char* name) { return std::getenv(name); });
}

}  // namespace weft
