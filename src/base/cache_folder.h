// base/cache_folder.h: where weft keeps what it can measure or rebuild.
#pragma once

#include <filesystem>

namespace weft {

// ${XDG_CACHE_HOME:-~/.cache}/weft; empty where there is no home.
std::filesystem::path cache_folder();

}  // namespace weft
