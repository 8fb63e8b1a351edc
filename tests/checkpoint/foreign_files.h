// tests/checkpoint/foreign_files.h: writes files as other programs do, and how opening them fails.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "checkpoint/logical.h"
#include "tests/io/temporary_folder.h"

namespace weft::testing {

inline void put(const std::filesystem::path& path, const std::string& bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string refusal(const std::filesystem::path& path) {
  return error_of<UserError>([&] { open_logical(path.string()); });
}

}  // namespace weft::testing
