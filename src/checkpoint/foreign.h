// checkpoint/foreign.h: the checkpoint folders of other training programs, as logical models.
//
// Both readers execute nothing (io/pickle.h), map the files and read a piece at a time.
#pragma once

#include <filesystem>
#include <vector>

#include "checkpoint/logical.h"

namespace weft {

// A folder with `latest`, or the global_stepN below it.
bool is_deepspeed(const std::filesystem::path& folder);
// ZeRO 1, 2 and 3, and none: the weights in fp32 as DeepSpeed's zero_to_fp32 joins them, and Adam's
// states as name#m and name#v where the layout shows them. Weights that the optimizer does not have
// (frozen, under ZeRO 1) are taken as the model holds them. UserError where it is of several
// tensor-parallel ranks or pipeline stages, or a rank's file is missing.
LogicalModel open_deepspeed(const std::filesystem::path& folder);

// A folder with .metadata.
bool is_dcp(const std::filesystem::path& folder);
// torch.distributed.checkpoint: every tensor from its chunks. A prefix that names the model
// ("model.") is dropped; PREFIX.state.NAME.exp_avg becomes NAME#m, exp_avg_sq NAME#v.
LogicalModel open_dcp(const std::filesystem::path& folder);

// Where config.json and the tokenizer may be: the folder itself and those above it.
std::vector<std::filesystem::path> config_folders(const std::filesystem::path& folder);

}  // namespace weft
