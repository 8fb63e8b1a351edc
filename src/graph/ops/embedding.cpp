// graph/ops/embedding.cpp: a cut table is a run of ids per rank; other ids yield zeros there.
#include "graph/ops/embedding.h"

#include "base/error.h"
#include "graph/gradients.h"
#include "graph/localizer.h"

namespace weft {
namespace {

// ids, table pieces -> rows
std::vector<Shape> embedding_shapes(const Graph& graph, const Node& node) {
  const Shape& ids = graph[node.inputs[0]].shape;
  return {{ids[0], ids[1], graph[node.inputs[1]].shape[1]}};
}

std::vector<Placement> place_embedding(const Node& node, const std::vector<Placement>& in) {
  if (in[1].is_whole() && (in[0].is_whole() || in[0].is_cut(0))) return {in[0]};
  if (in[0].is_whole() && in[1].is_cut(0)) return {partial()};
  refuse_placement(node, in);
}

void localize_embedding(Localizer* l, const Node& node) {
  Node made = Localizer::copy(node);
  made.inputs = {l->one(node.inputs[0])};
  l->add_pieces(node, 1, 1, &made);
  made.edit<EmbeddingAttr>().parts = static_cast<int>(made.inputs.size()) - 1;
  // All addends but one are zero: their sum is exact in any type.
  made.outputs = {l->addend(node.outputs[0], l->logical()[node.outputs[0]].dtype)};
  l->push(std::move(made));
}

void embedding_gradient(Gradients* g, const Node& node) {
  const Ref table = node.inputs[1], dy = g->of(node.outputs[0]);
  if (!dy || !g->needs(table)) return;
  const auto [dtable, first] = g->of_parameter(table);
  g->add(&kEmbeddingGradOp, node, {dy, node.inputs[0]}, {dtable}, node.attr).run.first_writer =
      first;
}

// dy, ids -> the gradients of the table's pieces
std::vector<Shape> embedding_grad_shapes(const Graph&, const Node& node) {
  return std::vector<Shape>(node.outputs.size());
}

std::vector<Placement> place_embedding_grad(const Node&, const std::vector<Placement>& in) {
  return {summed_over_rows(in[0], whole())};
}

}  // namespace

const OpRule kEmbeddingOp = {
    .name = "embedding",
    .shapes = embedding_shapes,
    .place = place_embedding,
    .localize = localize_embedding,
    .gradient = embedding_gradient,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = no_flops,
};

const OpRule kEmbeddingGradOp = {
    .name = "embedding_grad",
    .traits = {.writes_gradients = true, .gradient_lies_as_table = true},
    .shapes = embedding_grad_shapes,
    .place = place_embedding_grad,
    .localize = localize_plain,
    .gradient = not_differentiable,
    .repeat = not_repeated,
    .in_place = not_in_place,
    .flops = no_flops,
};

Ref ops::embedding(Builder& g, Ref ids, Ref table, int32_t padding_id) {
  const Shape &i = g.shape(ids), &t = g.shape(table);
  check_operands(i.size() == 2 && t.size() == 2, &kEmbeddingOp,
                 fmt::format("wanted ids (B, T) and a table (V, C), got {} and {}", to_string(i),
                             to_string(t)));
  const Ref out = g.activation("embedded", {i[0], i[1], t[1]}, g.compute());
  g.add(&kEmbeddingOp, {ids, table}, {out}, EmbeddingAttr{.padding_id = padding_id});
  return out;
}

}  // namespace weft
