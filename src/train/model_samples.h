// train/model_samples.h: fingerprints of what the model is read from, to find nodes with other
// files.
#pragma once

#include <filesystem>
#include <string>

#include "config/session.h"

namespace weft {

// A line for each file of model.path and data.tokenizer that training depends on: those that are
// read whole with their hash, weights with the hash of their header and of a sample.
std::string describe_model_files(const Session& session);

// A line for each file with weights, with the hash of every byte.
std::string describe_whole_weights(const Session& session);

// A line for each file of a checkpoint with its recorded hash: readers compare bytes with that.
std::string describe_checkpoint(const std::filesystem::path& checkpoint);

}  // namespace weft
