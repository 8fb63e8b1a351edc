// data/line_store.h: line indexes of large text files, kept beside the token caches.
//
// The folder is one of a token cache whose `tokens` is empty (cache_store.h), so that it is listed,
// counted and removed as they are. Of several processes one scans the text, and the others wait.
#pragma once

#include <functional>

#include "data/line_index.h"
#include "io/file_system.h"

namespace weft {

inline constexpr int64_t kLeastStoredText = int64_t{8} << 20;

// The marks stored for the file, or those of `scan`, which are then stored. Where the folder cannot
// be read or written, those of `scan`.
LineMarks marks_of_file(const FileInfo& file, RowFormat format,
                        const std::function<LineMarks()>& scan,
                        int64_t least_bytes = kLeastStoredText);

}  // namespace weft
