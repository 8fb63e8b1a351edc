// tests/parallel/graph_text.h: a graph as text, one line per value and per node, for comparisons.
#pragma once

#include <fmt/core.h>

#include <string>

#include "graph/graph.h"
#include "graph/ops/attention.h"
#include "graph/ops/collectives.h"
#include "graph/ops/embedding.h"
#include "graph/ops/grad_norm.h"
#include "graph/ops/head.h"
#include "graph/ops/linear.h"
#include "graph/ops/rope.h"

namespace weft::testing {

inline std::string value_text(const Graph& graph, size_t i) {
  const Value& v = graph.values[i];
  std::string text = fmt::format("  {} {} {} {} {}", i, kind_name(v.kind), v.name,
                                 to_string(v.shape), dtype_name(v.dtype));
  if (v.parameter) text += fmt::format(" of {}", v.parameter.id);
  if (v.base) text += fmt::format(" in {} at {}", v.base.id, v.base_offset);
  if (v.portion) {
    const Portion& p = *v.portion;
    text += fmt::format(" part {} {} at {} of {}: {} to {}", p.name, to_string(p.shape),
                        to_string(p.offset), to_string(p.extent), p.begin, p.end);
  }
  if (v.copies != 1 || v.copy_group >= 0)
    text += fmt::format(" {} copies in {}", v.copies, v.copy_group);
  return text + (v.frozen ? " frozen" : "") + (v.is_bucket ? " bucket" : "") +
         (v.is_saved ? "" : " unsaved") + (v.is_counted ? "" : " uncounted") + "\n";
}

// The attributes that passes write, where they are not the default.
class AttributeText {
 public:
  explicit AttributeText(const Node& node) : node_(node) {
    add_heads();
    if (const auto* a = std::any_cast<LinearAttr>(&node.attr)) {
      add("parts", a->parts, 1);
      add("bias", a->has_bias, false);
      add("column", a->column, 0);
      add("leaves", a->leaves, 0);
      add("row_pieces", a->row_pieces, 0);
    } else if (const auto* e = std::any_cast<EmbeddingAttr>(&node.attr)) {
      add("parts", e->parts, 1);
    } else if (const auto* h = std::any_cast<HeadAttr>(&node.attr)) {
      add("parts", h->parts, 1);
      add("leaves", h->leaves, 0);
    } else if (const auto* c = std::any_cast<CollectiveAttr>(&node.attr)) {
      add("bias", c->has_bias, false);
      add("data", c->axis == Axis::kData, false);
      add("copies", c->copies, 0);
      add("copy_group", c->copy_group, 0);
    } else if (const auto* n = std::any_cast<NormAttr>(&node.attr)) {
      add("sum_tensor", n->sum_tensor, false);
      add("sum_data", n->sum_data, false);
    }
    add_run();
  }
  std::string text;

 private:
  void add(const char* name, int64_t value, int64_t usual) {
    if (value != usual) text += fmt::format(" {}={}", name, value);
  }
  void add_heads() {
    const auto* rope = std::any_cast<RopeAttr>(&node_.attr);
    const auto* attention = std::any_cast<AttentionAttr>(&node_.attr);
    if (!rope && !attention) return;
    const HeadShape& h = rope ? rope->heads : attention->heads;
    add("heads", h.heads, 0);
    add("kv_heads", h.kv_heads, 0);
    if (attention) add("first_head", attention->first_head, 0);
  }
  void add_run() {
    const NodeRun& run = node_.run;
    add("first_writer", run.first_writer, true);
    add("async", run.async, false);
    add("slots", run.slots, 0);
    add("slot_stride", run.slot_stride, 0);
    add("group_leaves", run.group_leaves, 1);
    add("last_pass_only", run.last_pass_only, false);
  }

  const Node& node_;
};

inline std::string node_text(const Node& node) {
  std::string text =
      fmt::format("  {} {}{}:", op_name(node.op), node.layer, AttributeText(node).text);
  for (Ref r : node.inputs) text += fmt::format(" {}", r.id);
  text += " ->";
  for (Ref r : node.outputs) text += fmt::format(" {}", r.id);
  return text + "\n";
}

inline std::string graph_text(const Graph& graph) {
  std::string text = "values\n";
  for (size_t i = 0; i < graph.values.size(); ++i) text += value_text(graph, i);
  text += "pass\n";
  for (const Node& node : graph.pass) text += node_text(node);
  text += "finish\n";
  for (const Node& node : graph.finish) text += node_text(node);
  text += "updates\n";
  for (const Update& u : graph.updates)
    text += fmt::format("  {} by {}\n", u.parameter.id, u.gradient.id);
  return text;
}

}  // namespace weft::testing
