// graph/placement.cpp: the rules, one family of ops a function.
//
// Activations are (B, T, columns): dim 0 is the batch (data parallel), dim 2 the columns (tensor
// parallel). A parameter's gradient is partial where the rows that it sums over are cut.
#include "graph/placement.h"

#include "base/error.h"

namespace weft {
namespace {

using Inputs = std::vector<Placement>;

[[noreturn]] void refuse(const Node& node, const Inputs& in) {
  std::string text;
  for (const Placement& p : in) text += (text.empty() ? "" : ", ") + to_string(p);
  throw BugError(fmt::format("[{}] no placement rule for inputs ({})", op_name(node.op), text));
}

bool all_are(const Inputs& in, size_t begin, size_t count, const Placement& p) {
  for (size_t i = begin; i < begin + count; ++i) {
    if (!(in[i] == p)) return false;
  }
  return true;
}

// Inputs [begin, end) that are parameters or tables: whole for every rule but those of products.
bool rest_whole(const Inputs& in, size_t begin) {
  return all_are(in, begin, in.size() - begin, whole());
}

Placement linear(const Node& node, const Inputs& in) {
  const size_t parts = static_cast<size_t>(node.attr.parts);
  const size_t biases = in.size() - 1 - parts;
  if (rest_whole(in, 1) && (in[0].is_whole() || in[0].is_cut(0))) return in[0];
  if (in[0].is_whole() && all_are(in, 1, parts + biases, cut(0))) return cut(2);
  // Every rank would add the bias: the pass that cuts moves it behind the sum.
  const bool biases_whole = all_are(in, 1 + parts, biases, whole());
  if (in[0].is_cut(2) && all_are(in, 1, parts, cut(1)) && biases_whole) return partial();
  refuse(node, in);
}

Placement linear_dx(const Node& node, const Inputs& in) {
  const size_t parts = in.size() - 1;
  if (rest_whole(in, 1) && (in[0].is_whole() || in[0].is_cut(0))) return in[0];
  if (in[0].is_cut(2) && all_are(in, 1, parts, cut(0))) return partial();
  if (in[0].is_whole() && all_are(in, 1, parts, cut(1))) return cut(2);
  refuse(node, in);
}

Placement linear_dw(const Node& node, const Inputs& in) {
  if (in[0].is_whole() && in[1].is_whole()) return whole();
  if (in[0].is_cut(0) && in[1].is_cut(0)) return partial();
  if (in[0].is_cut(2) && in[1].is_whole()) return cut(0);
  if (in[0].is_whole() && in[1].is_cut(2)) return cut(1);
  refuse(node, in);
}

Placement embedding(const Node& node, const Inputs& in) {
  if (in[1].is_whole() && (in[0].is_whole() || in[0].is_cut(0))) return in[0];
  if (in[0].is_whole() && in[1].is_cut(0)) return partial();  // rows of other ranks give zero
  refuse(node, in);
}

// x, weight, targets -> losses, dx, dweight.
Inputs head(const Node& node, const Inputs& in) {
  if (rest_whole(in, 1) && in[0].is_whole()) return {whole(), whole(), whole()};
  if (in[0].is_cut(0) && in[1].is_whole() && in[2].is_cut(0)) return {cut(0), cut(0), partial()};
  // The ranks tell each other maxima and sums while the chunk is there: losses come out whole.
  if (in[0].is_whole() && in[1].is_cut(0)) return {whole(), partial(), cut(0)};
  refuse(node, in);
}

// Ops that treat every head (or column) and every row alone: what lies before lies after.
Placement along(const Node& node, const Inputs& in, std::initializer_list<size_t> like) {
  const Placement& first = in[*like.begin()];
  if (first.is_partial()) refuse(node, in);
  for (size_t i : like) {
    if (!(in[i] == first)) refuse(node, in);
  }
  return first;
}

// Norms read a whole row of columns: only rows may be cut.
Placement rows_only(const Node& node, const Inputs& in, std::initializer_list<size_t> like) {
  const Placement p = along(node, in, like);
  if (!p.is_whole() && !p.is_cut(0)) refuse(node, in);
  return p;
}

Placement summed_over_rows(const Placement& rows, const Placement& otherwise) {
  return rows.is_cut(0) ? partial() : otherwise;
}

Placement heads_of(const Placement& columns) { return columns.is_cut(2) ? cut(1) : columns; }

}  // namespace

std::string to_string(const Placement& p) {
  switch (p.kind) {
    case Placement::Kind::kWhole:
      return "whole";
    case Placement::Kind::kCut:
      return fmt::format("cut({})", p.dim);
    default:
      return "partial";
  }
}

std::vector<Placement> place_outputs(const Node& node, const Inputs& in) {
  switch (node.op) {
    case Op::kEmbedding:
      return {embedding(node, in)};
    case Op::kLinear:
      return {linear(node, in)};
    case Op::kLinearDx:
      return {linear_dx(node, in)};
    case Op::kLinearDw:
      return Inputs(node.outputs.size(), linear_dw(node, in));
    case Op::kBiasGrad:
      return Inputs(node.outputs.size(),
                    in[0].is_cut(2) ? cut(0) : summed_over_rows(in[0], whole()));
    case Op::kRmsNorm: {
      const Placement p =
          node.attr.has_residual ? rows_only(node, in, {0, 2}) : rows_only(node, in, {0});
      return {p, p, p};
    }
    case Op::kRmsNormApply:
      return {rows_only(node, in, {0, 2})};
    case Op::kRmsNormGrad: {
      const Placement p =
          node.attr.has_dsum ? rows_only(node, in, {0, 1, 3, 4}) : rows_only(node, in, {0, 1, 3});
      return {p, summed_over_rows(p, whole())};
    }
    case Op::kRope:
    case Op::kRopeInverse:
    case Op::kSwiglu:
      return {along(node, in, {0})};
    case Op::kAttention:
      return {along(node, in, {0}), heads_of(in[0])};
    case Op::kAttentionGrad:
      return {along(node, in, {0, 2, 3})};
    case Op::kSwigluGrad: {
      const Placement p = along(node, in, {0, 1});
      return node.outputs.size() > 1 ? Inputs{p, p} : Inputs{p};
    }
    case Op::kAdd:
      return {along(node, in, {0, 1})};
    case Op::kHeadLoss:
    case Op::kHeadLossGrad: {
      Inputs out = head(node, in);
      out.resize(node.outputs.size());
      return out;
    }
    case Op::kEmbeddingGrad:
      return {summed_over_rows(in[0], whole())};
    case Op::kLossSum:
      return {in[0].is_cut(0) ? partial() : in[0]};
    default:
      refuse(node, in);
  }
}

Placed propagate_placements(const Graph& graph, const std::map<std::string, Placement>& given) {
  Placed placed{std::vector<Placement>(graph.values.size()), {}};
  std::vector<bool> is_reduced(graph.values.size(), false);
  for (size_t i = 0; i < graph.values.size(); ++i) {
    if (const auto found = given.find(graph.values[i].name); found != given.end())
      placed.values[i] = found->second;
  }
  for (const Node& node : graph.pass) {
    Inputs in;
    for (Ref r : node.inputs) {
      const size_t id = static_cast<size_t>(r.id);
      if (placed.values[id].is_partial() && !is_reduced[id]) {
        placed.reduced.push_back(r);
        is_reduced[id] = true;
      }
      in.push_back(is_reduced[id] ? whole() : placed.values[id]);
    }
    const Inputs out = place_outputs(node, in);
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const Ref r = node.outputs[k];
      if (!r) continue;
      Placement& p = placed.values[static_cast<size_t>(r.id)];
      const Ref parameter = graph[r].parameter;
      // The gradient of a cut table lies as the table does: a rank keeps the ids that are its own.
      const bool cut_table = node.op == Op::kEmbeddingGrad && parameter &&
                             placed.values[static_cast<size_t>(parameter.id)].is_cut(0);
      p = cut_table ? cut(0) : out[k];
    }
  }
  return placed;
}

}  // namespace weft
