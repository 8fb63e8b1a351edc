// data/line_store.h: line indexes of large text files, stored next to the token caches.
//
// The folder has the form of a token cache with an empty `tokens` file (cache_store.h), so `weft
// cache` lists, counts and removes it. One process scans the text, and the others wait.
#pragma once

#include <functional>

#include "data/line_index.h"
#include "io/file_system.h"

namespace weft {

inline constexpr int64_t kLeastStoredText = int64_t{8} << 20;

// Returns the stored marks of the file, or calls `scan` and stores its marks. Where the folder
// cannot be read or written, only `scan` is used.
LineMarks marks_of_file(const FileInfo& file, RowFormat format,
                        const std::function<LineMarks()>& scan,
                        int64_t least_bytes = kLeastStoredText);

}  // namespace weft
