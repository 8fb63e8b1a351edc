// train/finished_run.h: a finished run can be recognized without its model, rows or memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "checkpoint/list.h"
#include "train/run_dir.h"

namespace weft {

// Whether final/ holds a model with intact files. RunError where that cannot be determined.
bool has_final(const std::filesystem::path& dir);

// What follows "is finished at step N" where its last checkpoint is sound.
const char* way_to_continue(bool is_early);

// The hint where a start would replace final/.
std::string new_run_hint(const std::filesystem::path& dir);

// The error of an end whose last step could not be saved; has_model: final/ was written anyway. The
// hint says what the same command does then, which depends on the existing checkpoints.
RunError unsaved_end(const std::filesystem::path& dir, int64_t step, bool has_model);

// Damaged checkpoints of a run that is finished anyway.
void warn_of_damaged(const CheckpointSearch& found);

// True, with a log line, where the last start of this run finished, final/ exists and no key has
// changed since, whether its last checkpoint is sound or not. Any other case needs open_run_dir.
// Takes no lock and writes nothing.
bool report_if_finished(const RunFile& file, const TrainOptions& options);

}  // namespace weft
