// data/formats.h: the format of a file by its name.
#pragma once

#include <optional>
#include <string>

#include "data/rows.h"

namespace weft {

// By the ending (.gz and .zst taken off); nullopt where it is not that of a known format.
std::optional<RowFormat> known_format(const std::string& path);

}  // namespace weft
