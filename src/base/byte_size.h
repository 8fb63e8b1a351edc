// base/byte_size.h: "5GB": sizes as people write them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft {

// Bytes of "5GB" (1e9 each), "2GiB" (2^30 each), "123"; units in any case. UserError begins with
// `what`, the name of the option or variable.
size_t parse_byte_size(const std::string& text, std::string_view what);

}  // namespace weft
