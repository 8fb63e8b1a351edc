// train/run_history.h: what events.jsonl records of a run whose checkpoints are gone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "config/run_config.h"

namespace weft {

// The reason in the event `finished` of a run that train.early_stop ended.
inline constexpr const char* kEarlyStop = "early_stop";

struct RunHistory {
  bool has_committed = false;              // a step's checkpoint was once committed
  std::optional<int64_t> finished_step;    // the last start finished there
  std::optional<int64_t> finished_epochs;  // and had been asked for these, instead of steps
  // It finished before that, by train.early_stop, after this many evaluations without progress.
  std::optional<int64_t> stalled_evals;
  std::string started_from;  // the checkpoint of the last start; empty: step 0
  std::string slurm_job;     // of the last start; empty: it was none
};

// Whether train.early_stop ends a run after this many evaluations without progress.
bool is_stalled(const TrainConfig& train, int64_t evals_without_progress);

// Empty where there is no events.jsonl; RunError where it cannot be read. Torn lines are parsed as
// far as possible.
RunHistory read_history(const std::filesystem::path& run_dir);

// Where `path` is the directory of a run that train.early_stop ended, its newest checkpoint is not
// the model in final/. option: the word before a model in the command, such as "--model ".
void warn_of_early_stop(const std::filesystem::path& path, const std::string& option = "");

}  // namespace weft
