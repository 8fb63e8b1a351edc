// train/resume_path.h: the checkpoint that --resume PATH names, and which run it belongs to.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/list.h"
#include "train/run_dir.h"

namespace weft {

struct NamedStart {
  std::filesystem::path checkpoint;
  Json state;                          // its state.json
  bool is_own = true;                  // it is in `checkpoints/` of this run's directory
  std::vector<DamagedFolder> damaged;  // skipped, where a run directory was named
};

// PATH is a checkpoint, or a run directory (or its checkpoints/): its newest sound one that is none
// of start.found_damaged, which is logged. UserError with what to give instead where there is none;
// DamagedCheckpoint where PATH is a checkpoint that is damaged.
NamedStart find_named_start(const std::string& path, const RunStart& start);

// UserError where the directory has checkpoints or a final/: a start from another run's checkpoint
// would replace them.
void check_nothing_replaced(const std::filesystem::path& run_dir,
                            const std::filesystem::path& checkpoint);

}  // namespace weft
