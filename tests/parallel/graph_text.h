// tests/parallel/graph_text.h: a graph as text, one line per value and per node, for comparisons.
#pragma once

#include <fmt/core.h>

#include <string>

#include "graph/graph.h"

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

// The attributes that the passes of this room write, where they are not the default.
inline std::string attribute_text(const Attributes& a) {
  const Attributes none;
  std::string text;
  const auto add = [&](const char* name, int64_t value, int64_t usual) {
    if (value != usual) text += fmt::format(" {}={}", name, value);
  };
  add("heads", a.heads, none.heads);
  add("kv_heads", a.kv_heads, none.kv_heads);
  add("first_head", a.first_head, none.first_head);
  add("parts", a.parts, none.parts);
  add("bias", a.has_bias, none.has_bias);
  add("column", a.column, none.column);
  add("first_writer", a.first_writer, none.first_writer);
  add("leaves", a.leaves, none.leaves);
  add("row_pieces", a.row_pieces, none.row_pieces);
  add("vocab_begin", a.vocab_begin, none.vocab_begin);
  add("data", a.axis == Axis::kData, false);
  add("copies", a.copies, none.copies);
  add("copy_group", a.copy_group, none.copy_group);
  add("beside", a.beside, none.beside);
  add("slots", a.slots, none.slots);
  add("slot_stride", a.slot_stride, none.slot_stride);
  add("group_leaves", a.group_leaves, none.group_leaves);
  add("last_pass_only", a.last_pass_only, none.last_pass_only);
  add("sum_tensor", a.sum_tensor, none.sum_tensor);
  add("sum_data", a.sum_data, none.sum_data);
  return text;
}

inline std::string node_text(const Node& node) {
  std::string text =
      fmt::format("  {} {}{}:", op_name(node.op), node.layer, attribute_text(node.attr));
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
