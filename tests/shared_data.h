// tests/shared_data.h: the reference data that some tests read (tests/needs_shared.txt).
#pragma once

#include <filesystem>

namespace weft {

// Next to the repository, or in it on another machine.
inline std::filesystem::path shared_data() {
  const std::filesystem::path beside = "../shared/data", inside = "shared/data";
  return !std::filesystem::exists(beside) && std::filesystem::exists(inside) ? inside : beside;
}

}  // namespace weft
