// train/final_model.h: the trained model as a Hugging Face folder.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/logical.h"
#include "config/session.h"

namespace weft {

// Files next to the weights: config.json, generation configuration, tokenizer. UserError where one
// of model.path cannot be used.
std::map<std::string, std::string> side_files(const Session& session);

// weights: in the highest precision that training keeps; files: from side_files(). RunError on a
// full disk.
void write_final_model(const std::filesystem::path& out, std::vector<LogicalTensor> weights,
                       std::map<std::string, std::string> files, const Session& session);

// RunError where the early end of a run has no best evaluation: all were NaN or infinite.
void require_best(std::optional<double> best, const std::string& measure, int64_t step);

// The model of checkpoints/best as final/, where train.early_stop ended the run at this step; the
// step of that model. RunError where it is gone or damaged.
int64_t write_best_as_final(const std::filesystem::path& run_dir, int64_t step,
                            const std::map<std::string, std::string>& files,
                            const Session& session);

// The slices of one rank that holds everything.
std::vector<LogicalTensor> tensors_in_memory(const std::vector<Slice>& slices);

}  // namespace weft
