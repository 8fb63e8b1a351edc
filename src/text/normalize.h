// text/normalize.h: Unicode normalization form C.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Nothing where the text is in form C already (the usual case, found in one pass). Bytes that are
// no UTF-8 stay as they are.
std::optional<std::string> to_nfc(std::string_view text);

}  // namespace weft
