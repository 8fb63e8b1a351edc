// base/version.h: weft's version number; CMake reads it from here.
#pragma once

namespace weft {

inline constexpr const char* kWeftVersion = "0.1.0";

}  // namespace weft
