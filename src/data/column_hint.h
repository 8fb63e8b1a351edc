// data/column_hint.h: which key of the run file to set where a row lacks the required column.
#pragma once

#include <string>
#include <vector>

#include "data/config.h"

namespace weft {

// missing: the column that a template wants; names: the existing ones. Suggests a column of nearly
// the same name; before it data.messages for chat rows, after it data.text.
std::string column_hint(const DataConfig& config, const std::string& missing,
                        const std::vector<std::string>& names);

// Warnings about templates that are probably wrong: \n in single quotes is not a line break.
std::vector<std::string> template_warnings(const DataConfig& config);

}  // namespace weft
