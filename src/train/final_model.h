// train/final_model.h: the trained model as a Hugging Face folder.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "train/session.h"

namespace weft {

// Files that stand beside the weights: config.json, generation configuration, tokenizer.
std::map<std::string, std::string> side_files(const Session& session);

// RunError on a full disk.
void write_final_model(const std::filesystem::path& out, const std::vector<Slice>& weights,
                       const Session& session);

}  // namespace weft
