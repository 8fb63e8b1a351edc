// train/model_samples.h: fingerprints of the model's files, to detect nodes whose files differ.
#pragma once

#include <filesystem>
#include <string>

#include "config/session.h"

namespace weft {

// A line for each file of model.path and data.tokenizer that training depends on. Weights have the
// hash of their header and of a sample, all other files the hash of every byte.
std::string describe_model_files(const Session& session);

// A line for each file with weights, with the hash of every byte.
std::string describe_whole_weights(const Session& session);

// A line for each file of a checkpoint with its recorded hash; readers verify the bytes.
std::string describe_checkpoint(const std::filesystem::path& checkpoint);

}  // namespace weft
