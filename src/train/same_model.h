// train/same_model.h: checks that weights belong to the run's model.
#pragma once

#include <filesystem>

#include "checkpoint/logical.h"
#include "config/session.h"

namespace weft {

// UserError where the model's config.json differs from the checkpoint's: the weights would fit, but
// it would be a different training. Other programs' notes in it may change.
void check_same_model(const std::filesystem::path& checkpoint, const Session& session);

// UserError where a file of the tokenizer differs from the checkpoint's: the same rows would get
// other ids.
void check_same_tokenizer(const std::filesystem::path& checkpoint, const Session& session);

// UserError where weights that are to be evaluated are of another architecture than model.path, or
// have other sizes.
void check_same_architecture(const LogicalModel& source, const Session& session);

}  // namespace weft
