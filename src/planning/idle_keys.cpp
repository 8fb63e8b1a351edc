// planning/idle_keys.cpp: one line each.
#include "planning/idle_keys.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/log.h"
#include "optim/optimizer.h"
#include "planning/backend.h"
#include "track/progress.h"

namespace weft {

namespace {

// Keys of one optimizer that were set for another.
void add_optimizer_keys(const OptimizerConfig& c, std::vector<std::string>* lines) {
  const OptimizerConfig usual;
  const std::vector<std::string> read = find_optimizer(c.name).keys();
  const auto add = [&](const char* key, bool was_set, const std::string& value) {
    if (!was_set || std::find(read.begin(), read.end(), key) != read.end()) return;
    lines->push_back(
        fmt::format("{}: {} has no effect with train.optimizer {}", key, value, c.name));
  };
  add("train.betas", c.betas != usual.betas, fmt::format("[{}]", fmt::join(c.betas, ", ")));
  add("train.eps", c.eps != usual.eps, fmt::format("{}", c.eps));
  add("train.momentum", c.momentum != usual.momentum, fmt::format("{}", c.momentum));
}

// The first evaluation is the best so far, and there is always one at the end.
void add_early_stop(const TrainConfig& c, std::vector<std::string>* lines) {
  const bool is_known = c.steps ? c.eval_every > 0 : c.eval_every == 0;
  if (c.early_stop == 0 || !is_known) return;
  const int64_t evaluations = c.steps ? (*c.steps + c.eval_every - 1) / c.eval_every : c.epochs;
  if (evaluations > c.early_stop) return;
  lines->push_back(fmt::format("train.early_stop: {} has no effect: the run has {} evaluation{}",
                               c.early_stop, evaluations, evaluations == 1 ? "" : "s"));
}

// A run of one rank has no supervisor.
void add_restart_keys(const LaunchConfig& c, std::vector<std::string>* lines) {
  const LaunchConfig usual;
  const auto add = [&](const char* key, bool was_set, const std::string& value) {
    if (was_set)
      lines->push_back(fmt::format(
          "launch.{}: {} has no effect with one rank, which nobody watches or replaces; the same "
          "command resumes it",
          key, value));
  };
  add("max_restarts", c.max_restarts != usual.max_restarts, std::to_string(c.max_restarts));
  add("restart_reset_steps", c.restart_reset_steps != usual.restart_reset_steps,
      std::to_string(c.restart_reset_steps));
  add("snapshot_every", c.snapshot_every != usual.snapshot_every, c.snapshot_every);
  add("hang_timeout_s", c.hang_timeout_s != usual.hang_timeout_s, std::to_string(c.hang_timeout_s));
}

}  // namespace

std::vector<std::string> idle_keys(const RunConfig& c, const Model& model) {
  std::vector<std::string> lines;
  if (c.parallel.dp == 1 && c.parallel.shard != "none")
    lines.push_back(
        fmt::format("parallel.shard: {} has no effect with parallel.dp 1", c.parallel.shard));
  if (c.parallel.dp * c.parallel.tp == 1) add_restart_keys(c.launch, &lines);
  // A resolved file holds the default, which nobody wrote.
  if (!c.scales_loss() && c.train.loss_scale != TrainConfig().loss_scale) {
    lines.push_back(
        fmt::format("train.loss_scale: {} has no effect with train.precision {}: only fp16 has one",
                    c.train.loss_scale, c.train.precision));
  }
  add_optimizer_keys(c.train.optimizer, &lines);
  add_early_stop(c.train, &lines);
  if (c.launch.nodes == 1 && c.launch.port != LaunchConfig().port)
    lines.push_back(fmt::format("launch.port: {} has no effect with one node", c.launch.port));
  if (c.data.target_length != DataConfig().target_length && !reads_source(model)) {
    lines.push_back(
        fmt::format("data.target_length: {} has no effect: this model has no encoder, and "
                    "data.seq_length holds prompt and answer",
                    c.data.target_length));
  }
  return lines;
}

std::vector<std::string> idle_on(const RunConfig& c, const Device& device) {
  std::vector<std::string> lines;
  for (std::string line :
       {why_no_tf32_here(c, !device.is_host()), why_no_ipc_here(!device.is_host())})
    if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

void report_device(const RunConfig& c, const Device& device) {
  const std::string why = device.is_host() ? cpu_line(c, find_gpus()) : "";
  if (!why.empty()) log_info("{}", why);
  for (const std::string& line : idle_on(c, device)) log_warning("{}", line);
}

std::string describe_pack(const PackSize& size) {
  return fmt::format("{} rows packed into {} of {} positions, {:.1f} % of them tokens", size.rows,
                     size.sequences, size.positions / std::max<int64_t>(size.sequences, 1),
                     100 * size.efficiency());
}

}  // namespace weft
