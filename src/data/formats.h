// data/formats.h: the format of a file by its name.
#pragma once

#include <optional>
#include <string>

#include "data/rows.h"

namespace weft {

// Format by extension, ignoring .gz and .zst; nullopt where the extension is unknown.
std::optional<RowFormat> known_format(const std::string& path);

}  // namespace weft
