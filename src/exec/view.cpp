// exec/view.cpp: addresses of values, and values stacked as one operand.
#include "exec/view.h"

#include "exec/memory_plan.h"

namespace weft {
namespace {

alignas(kAlignment) std::byte nowhere[kAlignment];

}  // namespace

const std::byte* View::at_column(Ref r, int64_t column) const {
  const std::byte* base = at<std::byte>(r);
  return base ? base + column * dtype_bytes(value(r).dtype) : nullptr;
}

Nowhere::Nowhere(const Graph& graph) : data_(graph.values.size(), nowhere), view_{graph, data_} {}

Stack stacked(const View& v, const std::vector<Ref>& refs, size_t begin, int count) {
  Stack s;
  s.count = count;
  s.ld = v.value(refs[begin]).shape[1];
  for (int p = 0; p < count; ++p) {
    const Ref r = refs[begin + static_cast<size_t>(p)];
    s.part[p] = v.at(r);
    s.rows[p] = v.value(r).shape[0];
  }
  return s;
}

Stack single_stack(void* data, int64_t rows, int64_t ld) {
  Stack s;
  s.count = 1;
  s.part[0] = data;
  s.rows[0] = rows;
  s.ld = ld;
  return s;
}

}  // namespace weft
