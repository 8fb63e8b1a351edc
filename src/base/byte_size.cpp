// base/byte_size.cpp: a number and its unit.
#include "base/byte_size.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace weft {

size_t parse_byte_size(const std::string& text, std::string_view what) {
  static const std::map<std::string, double> kUnits = {
      {"", 1},      {"b", 1},        {"kb", 1e3},        {"mb", 1e6},     {"gb", 1e9},
      {"tb", 1e12}, {"kib", 1024.0}, {"mib", 1048576.0}, {"gib", 0x1p30}, {"tib", 0x1p40}};
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string name = text.substr(digits);
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  const auto unit = kUnits.find(name);
  double bytes = -1;
  if (unit != kUnits.end() && digits > 0 && digits < 20) {
    try {
      bytes = std::stod(text.substr(0, digits)) * unit->second;
    } catch (const std::exception&) {
    }
  }
  require(bytes >= 1 && bytes < 9e18,
          "{} \"{}\": wanted a number and its unit (B, KB, MB, GB, TB, KiB, MiB, GiB or TiB), such "
          "as 5GB",
          what, text);
  return static_cast<size_t>(bytes);
}

}  // namespace weft
