// checkpoint/join.h: a logical tensor assembled from its boxes.
#pragma once

#include "checkpoint/logical.h"
#include "checkpoint/region.h"

namespace weft {

// A box of a tensor; its elements are read in the box's own row-major order.
struct TensorBox {
  Shape offset, extent;
  std::function<void(int64_t begin, int64_t end, void* out)> read;
};

// The boxes must cover the tensor, each element once, and hold elements of dtype.
LogicalTensor join_boxes(std::string name, Shape shape, Dtype dtype, std::vector<TensorBox> boxes);

}  // namespace weft
