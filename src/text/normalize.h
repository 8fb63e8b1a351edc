// text/normalize.h: Unicode normalization forms C and KC, lower case.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Nothing where the text is in form C already (the usual case, found in one pass). Bytes that are
// no UTF-8 stay as they are.
std::optional<std::string> to_nfc(std::string_view text);
std::optional<std::string> to_nfkc(std::string_view text);
// Character by character, as Rust's to_lowercase: no rule looks at neighbours.
std::optional<std::string> to_lower(std::string_view text);

}  // namespace weft
