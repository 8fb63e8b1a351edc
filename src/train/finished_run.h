// train/finished_run.h: a run that came to its end can say so without its model, rows or memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "checkpoint/list.h"
#include "train/run_dir.h"

namespace weft {

// final/ holds a model whose files are whole. RunError where that cannot be determined.
bool has_final(const std::filesystem::path& dir);

// The hint where a start would replace final/.
std::string new_run_hint(const std::filesystem::path& dir);

// An end whose last step could not be saved; has_model: final/ is written all the same. The hint
// says what the same command does then, which is up to the checkpoints that are there.
RunError unsaved_end(const std::filesystem::path& dir, int64_t step, bool has_model);

// Damaged checkpoints of a run that is finished all the same.
void warn_of_damaged(const CheckpointSearch& found);

// True, and said, where the last start of this run came to its end, final/ is there and no key has
// changed since, whether its last checkpoint is sound or not. Any other answer needs open_run_dir.
// Takes no lock and writes nothing.
bool report_if_finished(const RunFile& file, const TrainOptions& options);

}  // namespace weft
