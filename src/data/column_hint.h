// data/column_hint.h: which key of the run file to set where a row lacks the column it asks for.
#pragma once

#include <string>
#include <vector>

#include "data/config.h"

namespace weft {

// names: the columns that are there. Rows of chat are answered with data.messages, rows of text
// with data.text.
std::string column_hint(const DataConfig& config, const std::vector<std::string>& names);

}  // namespace weft
