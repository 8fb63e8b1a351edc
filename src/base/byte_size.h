// base/byte_size.h: "5GB", as people give sizes.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

// Bytes of "5GB" (1e9 each), "2GiB" (2^30 each), "123"; units in any case. UserError begins with
// `what`, the option or variable that it stands in.
size_t parse_byte_size(const std::string& text, std::string_view what);

}  // namespace weft
