// data/column_hint.h: which key of the run file to set where a row lacks the required column.
#pragma once

#include <string>
#include <vector>

#include "data/config.h"

namespace weft {

// names: the existing columns. Suggests data.messages for chat rows, data.text for text.
std::string column_hint(const DataConfig& config, const std::vector<std::string>& names);

}  // namespace weft
