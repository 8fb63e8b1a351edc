// tensor/shape.cpp: counting and printing.
#include "tensor/shape.h"

#include "base/error.h"

namespace weft {

// A sum over every tensor of the deepest model that is accepted fits in 64 bits.
constexpr int64_t kMostElements = int64_t{1} << 42;

int64_t num_elements(const Shape& shape) {
  int64_t n = 1;
  for (int64_t extent : shape) {
    if (__builtin_mul_overflow(n, extent, &n) || n > kMostElements) {
      throw UserError(fmt::format("a tensor of shape {} has more elements than weft's limit of {}",
                                  to_string(shape), kMostElements),
                      "lower train.micro_batch or data.seq_length, or use a smaller model");
    }
  }
  return n;
}

std::string to_string(const Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return text + ")";
}

}  // namespace weft
