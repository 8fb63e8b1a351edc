// io/file_kind.h: the kind of a file that is not text, by its first bytes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

// "zip archive", "IDX file, 10000 x 28 x 28 of uint8", ...; "bytes of an unknown kind"; empty where
// `head`, the first bytes of a file, is text.
std::string binary_kind(std::string_view head);

inline constexpr size_t kHeadBytes = 4096;
// The first kHeadBytes of a local path or a URI, decompressed where it ends in .gz or .zst.
std::string head_of_file(const std::string& path);

// Of a local path or a URI; of the decompressed content where it ends in .gz or .zst.
std::string binary_kind_of_file(const std::string& path);

}  // namespace weft
