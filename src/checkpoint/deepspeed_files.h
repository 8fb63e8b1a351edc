// checkpoint/deepspeed_files.h: the files of a DeepSpeed checkpoint, by rank.
#pragma once

#include <filesystem>
#include <vector>

namespace weft {

inline constexpr const char* kWholeDeepSpeedFolder =
    "copy the whole folder: every rank has written one file; with several nodes, to its own disk";

// The folder of the step that `latest` names; the folder itself where it holds the files.
std::filesystem::path deepspeed_step_folder(const std::filesystem::path& folder);

struct DeepSpeedFiles {
  std::vector<std::filesystem::path> model, optim;  // by rank; model: one under ZeRO 1 and 2
};
// UserError where a rank is missing, or a file is of a tensor-parallel rank, a pipeline stage or an
// expert.
DeepSpeedFiles list_deepspeed_files(const std::filesystem::path& folder);

}  // namespace weft
