// train/run_report.h: what a run reports at its start and its end, as events and log lines.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "config/schedule_warnings.h"
#include "config/session.h"
#include "train/run_dir.h"
#include "train/saver.h"
#include "train/start_state.h"

namespace weft {

struct StartReport {
  const RunFile& file;
  const RunStart& start;
  const Session& session;
  const Device& device;
  const TrainState& state;
  const LoadedStart& loaded;
  RunLength length;
  std::optional<PackSize> pack_size;  // of the first epoch, where it was counted
  const RowSource& rows;
  const RowSource* eval_rows;  // null: none
  int64_t generation = 0;      // of the ranks, counted since the command started
};
// The event `started`, the run file, and warnings about it. Collective.
void report_start(const StartReport& report, Engine& engine, Ranks& ranks, RunRecord& record);

// The event `finished`, the row and step counts, and the curve. best_step: of the model in final/,
// where train.early_stop ended the run.
void report_finish(const RunConfig& config, const std::filesystem::path& dir,
                   const TrainState& state, const DataCounters& rows,
                   std::optional<int64_t> best_step, RunRecord& record);

}  // namespace weft
