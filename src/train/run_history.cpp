// train/run_history.cpp: events.jsonl, line by line.
#include "train/run_history.h"

#include <sstream>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/path.h"

namespace weft {
namespace {

std::string text_of(const Json& line, const char* key) {
  const Json* value = line.find(key);
  return value && value->is_string() ? value->as_string() : "";
}

// checkpoints/best does not count as a step.
bool is_of_step(const std::filesystem::path& path) {
  return path.filename().string().starts_with("step-");
}

void count(const Json& line, RunHistory* history) {
  const std::string event = text_of(line, "event");
  if (event == "checkpoint" && is_of_step(text_of(line, "path"))) history->has_committed = true;
  if (event == "started") {
    history->finished_step.reset();
    history->finished_epochs.reset();
    history->stalled_evals.reset();
    history->started_from = text_of(line, "from");
    history->slurm_job = text_of(line, "slurm_job");
  }
  if (event != "finished") return;
  const Json *step = line.find("step"), *epochs = line.find("epochs");
  if (step && step->is_int()) history->finished_step = step->as_int();
  if (epochs && epochs->is_int()) history->finished_epochs = epochs->as_int();
  const Json* stalled = line.find("evals_without_progress");
  if (text_of(line, "reason") == kEarlyStop && stalled && stalled->is_int())
    history->stalled_evals = stalled->as_int();
}

}  // namespace

bool is_stalled(const TrainConfig& train, int64_t evals_without_progress) {
  return train.early_stop > 0 && evals_without_progress >= train.early_stop;
}

RunHistory read_history(const std::filesystem::path& run_dir) {
  const std::filesystem::path path = run_dir / "events.jsonl";
  RunHistory history;
  if (path_kind(path) == PathKind::kNothing) return history;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) {
    try {
      count(parse_json(line, path.string()), &history);
    } catch (const UserError&) {  // torn: the event had happened when its line was started
      if (line.find("\"checkpoint\"") != std::string::npos &&
          line.find("/step-") != std::string::npos)
        history.has_committed = true;
    }
  }
  return history;
}

void warn_of_early_stop(const std::filesystem::path& path, const std::string& option) {
  if (path_kind(path / "checkpoints") != PathKind::kFolder) return;
  if (!read_history(path).stalled_evals) return;
  log_warning("{0} ended early: this is its last step; {1}{0}/final is the best model",
              path.string(), option);
}

}  // namespace weft
