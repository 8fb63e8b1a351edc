// tensor/shape.cpp: counting and printing.
#include "tensor/shape.h"

#include <fmt/core.h>

namespace weft {

int64_t num_elements(const Shape& shape) {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return text + ")";
}

}  // namespace weft
