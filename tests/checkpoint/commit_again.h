// tests/checkpoint/commit_again.h: a COMMITTED for JSON files that a test has edited.
#pragma once

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/hash.h"

namespace weft {

// Hashes of what index.json and state.json hold now; other files are not covered.
inline void commit_again(const std::filesystem::path& folder) {
  std::ofstream committed(folder / "COMMITTED");
  for (const char* file : {"index.json", "state.json"})
    committed << file << ' ' << hash_hex(hash_text(read_file(folder / file))) << '\n';
}

}  // namespace weft
