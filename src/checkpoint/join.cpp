// checkpoint/join.cpp: every box reads the runs that it shares with a range.
#include "checkpoint/join.h"

#include "base/error.h"

namespace weft {

LogicalTensor join_boxes(std::string name, Shape shape, Dtype dtype, std::vector<TensorBox> boxes) {
  int64_t held = 0;
  for (const TensorBox& box : boxes) held += num_elements(box.extent);
  ensure(held == num_elements(shape),
         fmt::format("the parts of {} cover {} of {} elements", name, held, num_elements(shape)));
  LogicalTensor joined{std::move(name), shape, dtype, {}};
  const bool is_one = boxes.size() == 1;
  if (is_one) {
    joined.read = std::move(boxes[0].read);
    return joined;
  }
  joined.read = [shape, size = dtype_bytes(dtype), boxes = std::move(boxes)](
                    int64_t begin, int64_t end, void* out) {
    const Region wanted{Shape(shape.size(), 0), shape, begin, end};
    for (const TensorBox& box : boxes) {
      const Region held_here{box.offset, box.extent, 0, num_elements(box.extent)};
      for_each_common_run(held_here, wanted, [&](int64_t from, int64_t to, int64_t count) {
        box.read(from, from + count, static_cast<std::byte*>(out) + to * size);
      });
    }
  };
  return joined;
}

}  // namespace weft
