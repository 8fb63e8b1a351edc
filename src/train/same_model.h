// train/same_model.h: whether a checkpoint is of the model that the run now has.
#pragma once

#include <filesystem>

#include "config/session.h"

namespace weft {

// UserError where the model's config.json says something else than the checkpoint's: weights would
// fit and the training would be another one. Notes of other programs in it may change.
void check_same_model(const std::filesystem::path& checkpoint, const Session& session);

}  // namespace weft
