// cmd/status_text.h: what weft status prints.
#pragma once

#include <string>

#include "train/run_status.h"

namespace weft {

std::string status_text(const RunStatus& status);

}  // namespace weft
