// graph/graph.cpp: names and sizes.
#include "graph/graph.h"

#include "base/error.h"
#include "graph/op_rule.h"

namespace weft {

Ref Graph::add(Value v) {
  values.push_back(std::move(v));
  return Ref{static_cast<int>(values.size()) - 1};
}

std::vector<Ref> Graph::of_kind(ValueKind kind) const {
  std::vector<Ref> found;
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].kind == kind) found.push_back(Ref{static_cast<int>(i)});
  }
  return found;
}

std::optional<Ref> Graph::find(const std::string& name) const {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].name == name) return Ref{static_cast<int>(i)};
  }
  return std::nullopt;
}

Graph::Storage Graph::storage_of(Ref r) const {
  Storage found{r};
  for (; (*this)[found.root].base; found.root = (*this)[found.root].base) {
    const Value& v = (*this)[found.root];
    found.offset_bytes += v.base_offset * dtype_bytes(v.dtype);
  }
  return found;
}

void Node::throw_other_attributes() const {
  throw BugError(fmt::format("[{}] has other attributes than requested", op->name));
}

Portion portion_of(const Value& v) {
  if (v.portion) return *v.portion;
  return {v.name, v.shape, Shape(v.shape.size(), 0), v.shape, 0, num_elements(v.shape)};
}

const char* kind_name(ValueKind kind) {
  constexpr const char* kNames[] = {"input", "constant", "parameter",  "gradient",
                                    "state", "cache",    "activation", "result"};
  return kNames[static_cast<size_t>(kind)];
}

int64_t value_bytes(const Value& v) { return num_elements(v.shape) * dtype_bytes(v.dtype); }

}  // namespace weft
