// graph/ops/linear_local.cpp: the products of one tensor-parallel rank.
//
// A weight cut along its `out` dim yields columns of y and an addend of dx; one cut along its `in`
// dim yields an addend of y and columns of dx.
#include <algorithm>

#include "base/error.h"
#include "graph/localizer.h"
#include "graph/ops/linear.h"

namespace weft {
namespace {

using Refs = std::vector<Ref>;

// Along its `in` dim; a bias has none.
bool is_row_cut(const Localizer& l, Ref parameter, const LinearAttr& attr) {
  const bool is_weight = l.logical()[parameter].shape.size() == 2;
  return is_weight && l.placement(parameter).is_cut(static_cast<int>(in_dim(attr)));
}

// Of y, those that a weight or a bias gives.
int64_t product_columns(const Value& v, const LinearAttr& attr) {
  return v.shape[v.shape.size() == 1 ? 0 : out_dim(attr)];
}

// Where the columns of each weight and bias of a product begin, on this rank.
void note_columns(Localizer* l, const Node& node) {
  const LinearAttr& attr = node.as<LinearAttr>();
  const size_t parts = static_cast<size_t>(attr.parts);
  int64_t column = 0;
  for (size_t p = 0; p < parts; ++p) {
    l->set_column(node.inputs[1 + p], column);
    if (attr.has_bias) l->set_column(node.inputs[1 + parts + p], column);
    for (Ref piece : l->pieces(node.inputs[1 + p]))
      column += product_columns(l->local()[piece], attr);
  }
}

// The node with its one input and the pieces of the weights.
Node with_weights(Localizer* l, const Node& node, size_t parts) {
  Node made = Localizer::copy(node);
  made.inputs.push_back(l->one(node.inputs[0]));
  l->add_pieces(node, 1, parts, &made);
  LinearAttr& attr = made.edit<LinearAttr>();
  const int num_pieces = static_cast<int>(made.inputs.size()) - 1;
  (is_row_cut(*l, node.inputs[1], attr) ? attr.row_pieces : attr.parts) = num_pieces;
  return made;
}

Ref activation(Localizer* l, const Node& made, Ref logical) {
  return l->activation(logical, made.op->shapes(l->local(), made)[0]);
}

Node with_inputs(Localizer* l, const Node& node) {
  Node made = Localizer::copy(node);
  for (Ref r : node.inputs) made.inputs.push_back(l->one(r));
  return made;
}

// Fast mode: whether leaves of this rank share a gradient.
bool is_spread(Localizer* l, const Node& node) {
  return !l->mesh().is_exact && std::any_of(node.outputs.begin(), node.outputs.end(), [&](Ref g) {
    return l->pieces(l->logical()[g].parameter).size() != l->pieces(g).size();
  });
}

// The first leaf of a gradient stores it, later ones add to it; adjacent leaves that store are one
// node.
void localize_spread_grad(Localizer* l, const Node& node) {
  std::vector<Node> made;
  int64_t end = -1;  // of the last node's columns
  for (Ref g : node.outputs) {
    const Ref parameter = l->logical()[g].parameter;
    const Refs& leaves = l->pieces(parameter);
    int64_t column = l->column(parameter, node.as<LinearAttr>().column);
    for (size_t i = 0; i < leaves.size(); ++i) {
      const bool stores = i == 0 || leaves[i] != leaves[i - 1];
      if (!stores || column != end || made.back().run.first_writer != node.run.first_writer) {
        made.push_back(with_inputs(l, node));
        made.back().edit<LinearAttr>().column = column;
        made.back().run.first_writer = node.run.first_writer && stores;
      }
      made.back().outputs.push_back(l->gradient_of(leaves[i]));
      end = column += product_columns(l->local()[leaves[i]], node.as<LinearAttr>());
    }
  }
  for (Node& n : made) {
    n.edit<LinearAttr>().parts = static_cast<int>(n.outputs.size());
    l->push(std::move(n));
  }
}

}  // namespace

std::vector<int64_t> stacked_widths(const Localizer& l, Ref x) {
  const std::vector<Node>& nodes = l.logical().pass;
  const int64_t columns = l.logical()[x].shape.back();
  for (;;) {
    const auto writes = [&](const Node& n) {
      return std::find(n.outputs.begin(), n.outputs.end(), x) != n.outputs.end();
    };
    const auto node = std::find_if(nodes.begin(), nodes.end(), writes);
    if (node == nodes.end()) return {columns};
    if (node->op == &kLinearOp) {
      const LinearAttr& attr = node->as<LinearAttr>();
      std::vector<int64_t> widths;
      for (int p = 0; p < attr.parts; ++p) {
        widths.push_back(
            product_columns(l.logical()[node->inputs[static_cast<size_t>(1 + p)]], attr));
      }
      return widths;
    }
    const Ref from = node->inputs[0];
    if (!l.placement(from).is_cut(2) || l.logical()[from].shape.back() != columns) return {columns};
    x = from;
  }
}

void localize_linear(Localizer* l, const Node& node) {
  const LinearAttr& logical = node.as<LinearAttr>();
  const size_t parts = static_cast<size_t>(logical.parts);
  Node made = with_weights(l, node, parts);
  if (is_row_cut(*l, node.inputs[1], logical)) {
    const bool alone = l->mesh().tp == 1;
    ensure(parts == 1, "a product of several weights cut along their second dim");
    const Ref bias = logical.has_bias ? l->one(node.inputs[1 + parts]) : Ref{};
    if (alone && bias) made.inputs.push_back(bias);
    made.edit<LinearAttr>().has_bias = alone && bias;
    made.outputs = {l->addend(node.outputs[0], l->addend_dtype(node.outputs[0]), bias)};
    return l->push(std::move(made));
  }
  if (logical.has_bias) l->add_pieces(node, 1 + parts, parts, &made);
  note_columns(l, node);
  made.outputs = {activation(l, made, node.outputs[0])};
  l->push(std::move(made));
}

void localize_linear_dx(Localizer* l, const Node& node) {
  Node made = with_weights(l, node, node.inputs.size() - 1);
  const Ref dx = node.outputs[0];
  if (l->placement(dx).is_partial()) {
    if (l->mesh().is_exact) made.edit<LinearAttr>().leaves = l->mesh().pieces_per_rank();
    made.outputs = {l->addend(dx, l->addend_dtype(dx))};
  } else {
    made.outputs = {activation(l, made, dx)};
  }
  l->push(std::move(made));
}

// The gradients of this rank's pieces. Those with copies are computed by a separate node, which
// writes an addend per leaf.
void localize_weight_grad(Localizer* l, const Node& node) {
  if (is_spread(l, node)) return localize_spread_grad(l, node);
  size_t end = 0;
  for (size_t begin = 0; begin < node.outputs.size(); begin = end) {
    Node made = with_inputs(l, node);
    const bool copied = l->is_copied(node.outputs[begin]);
    while (end < node.outputs.size() && l->is_copied(node.outputs[end]) == copied) {
      for (Ref g : l->pieces(node.outputs[end++])) {
        const Refs written = copied ? l->addends_of_copies(g) : Refs{g};
        made.outputs.insert(made.outputs.end(), written.begin(), written.end());
      }
    }
    const Ref first = l->logical()[node.outputs[begin]].parameter;
    LinearAttr& attr = made.edit<LinearAttr>();
    if (is_row_cut(*l, first, attr)) {
      attr.row_pieces = static_cast<int>(made.outputs.size());
    } else {
      attr.parts = static_cast<int>(made.outputs.size());
      attr.column = l->column(first, attr.column);
    }
    l->push(std::move(made));
  }
}

}  // namespace weft
