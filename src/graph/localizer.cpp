// graph/localizer.cpp: maps values of the logical graph to one rank's.
#include "graph/localizer.h"

#include "base/error.h"
#include "graph/op_rule.h"

namespace weft {

Ref Localizer::one(Ref logical) {
  if (!logical) return logical;
  ensure(pieces(logical).size() == 1, logical_[logical].name + " is not one value");
  return pieces(logical)[0];
}

void Localizer::add_pieces(const Node& node, size_t begin, size_t count, Node* made) {
  for (size_t i = begin; i < begin + count; ++i) {
    for (Ref piece : pieces(node.inputs[i])) made->inputs.push_back(piece);
  }
}

Ref Localizer::activation(Ref logical, Shape shape) {
  Value v = logical_[logical];
  v.shape = std::move(shape);
  pieces(logical) = {local_.add(std::move(v))};
  return pieces(logical)[0];
}

void Localizer::push_plain(const Node& node, std::any attr) {
  Node made = copy(node);
  made.attr = std::move(attr);
  for (Ref r : node.inputs) made.inputs.push_back(one(r));
  made.outputs.resize(node.outputs.size());
  const std::vector<Shape> shapes = node.op->shapes(local_, made);
  made.outputs.clear();
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    const Ref r = node.outputs[k];
    if (!r) {
      made.outputs.push_back(Ref{});
    } else if (logical_[r].kind == ValueKind::kActivation) {
      made.outputs.push_back(activation(r, shapes[k]));
    } else {
      for (Ref piece : pieces(r)) made.outputs.push_back(piece);
    }
  }
  push(std::move(made));
}

int64_t Localizer::column(Ref parameter, int64_t otherwise) const {
  const auto found = columns_.find(parameter.id);
  return found == columns_.end() ? otherwise : found->second;
}

void localize_plain(Localizer* localizer, const Node& node) {
  localizer->push_plain(node, node.attr);
}

}  // namespace weft
