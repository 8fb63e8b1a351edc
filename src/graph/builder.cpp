// graph/builder.cpp: values by kind, and nodes checked against their rules.
#include "graph/builder.h"

#include "base/error.h"
#include "graph/op_rule.h"

namespace weft {

void check_operands(bool ok, Op op, const std::string& what) {
  ensure(ok, fmt::format("[{}] {}", op_name(op), what));
}

Ref Builder::input(std::string name, Shape shape, Dtype dtype, int64_t fill) {
  Value input{std::move(name), std::move(shape), dtype, ValueKind::kInput};
  input.fill = fill;
  return graph_.add(std::move(input));
}

Ref Builder::constant(std::string name, Shape shape, Dtype dtype) {
  return graph_.add({std::move(name), std::move(shape), dtype, ValueKind::kConstant});
}

Ref Builder::parameter(std::string name, Shape shape) {
  return graph_.add({std::move(name), std::move(shape), compute_, ValueKind::kParameter});
}

Ref Builder::cache(std::string name, Shape shape) {
  return graph_.add({std::move(name), std::move(shape), compute_, ValueKind::kCache});
}

Ref Builder::activation(const char* what, Shape shape, Dtype dtype) {
  std::string name = layer_ < 0 ? what : fmt::format("layer{}.{}", layer_, what);
  return graph_.add({std::move(name), std::move(shape), dtype, ValueKind::kActivation});
}

Ref Builder::result(const char* name, Shape shape, Dtype dtype) {
  return graph_.add({name, std::move(shape), dtype, ValueKind::kResult});
}

void Builder::add(Op op, std::vector<Ref> inputs, std::vector<Ref> outputs, std::any attr) {
  graph_.pass.push_back({op, std::move(inputs), std::move(outputs), std::move(attr), layer_});
  check_node(graph_, graph_.pass.back());
}

}  // namespace weft
