// tensor/shape.h: the extents of a tensor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

using Shape = std::vector<int64_t>;

int64_t num_elements(const Shape& shape);   // UserError where the count is absurdly large
std::string to_string(const Shape& shape);  // "(2, 3)"

}  // namespace weft
