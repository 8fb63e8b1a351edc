// model/name_part.h: rules for parameters, by a part of their names.
#pragma once

#include <string>

namespace weft {

inline bool has_part(const std::string& name, const char* part) {
  return name.find(part) != std::string::npos;
}

}  // namespace weft
