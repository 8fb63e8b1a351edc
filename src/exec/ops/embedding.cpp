// exec/ops/embedding.cpp: one call for each piece of the table.
#include "graph/ops/embedding.h"

#include "exec/op_binding.h"
#include "kernel/gpu/device_limits.h"

namespace weft {
namespace {

EmbeddingArgs embedding_args(const View& v, const Node& node, int p) {
  const Ref piece = node.inputs[static_cast<size_t>(1 + p)];
  const Value& table = v.value(piece);
  EmbeddingArgs a{};
  a.R = v.tokens(node.inputs[0]);
  a.C = table.shape[1];
  a.V = table.shape[0];
  a.dtype = table.dtype;
  a.ids = v.at<int32_t>(node.inputs[0]);
  a.table = v.at(piece);
  a.out = v.at(node.outputs[0]);
  a.first_id = v.first_row(piece);
  a.keep_others = p > 0;
  return a;
}

NodeCall bind_embedding(const BindContext& b, const Node& node) {
  std::vector<EmbeddingArgs> tables;
  for (int p = 0; p < node.as<EmbeddingAttr>().parts; ++p)
    tables.push_back(embedding_args(b.view, node, p));
  return [tables, &k = b.kernels, c = b.context](const StepScalars&) {
    for (const EmbeddingArgs& a : tables) k.embedding(*c, a);
  };
}

EmbeddingBackwardArgs embedding_grad_args(const View& v, const Node& node, size_t p) {
  const Ref piece = node.outputs[p];
  const Value& dtable = v.value(piece);
  EmbeddingBackwardArgs a{};
  a.R = v.tokens(node.inputs[0]);
  a.C = dtable.shape[1];
  a.V = dtable.shape[0];
  a.dtype = v.value(node.inputs[0]).dtype;
  a.grad_dtype = dtable.dtype;
  a.ids = v.at<int32_t>(node.inputs[1]);
  a.padding_id = node.as<EmbeddingAttr>().padding_id;
  a.dout = v.at(node.inputs[0]);
  a.dtable = v.at(piece);
  a.first_id = v.first_row(piece);
  return a;
}

size_t embedding_grad_workspace(const PlanContext& p, const Node& node) {
  return p.kernels.embedding_backward_workspace(embedding_grad_args(p.view, node, 0),
                                                p.num_threads);
}

NodeCall bind_embedding_grad(const BindContext& b, const Node& node) {
  std::vector<EmbeddingBackwardArgs> tables;
  for (size_t p = 0; p < node.outputs.size(); ++p)
    tables.push_back(embedding_grad_args(b.view, node, p));
  return [tables, adds = accumulates(b.view, node), &k = b.kernels,
          c = b.context](const StepScalars& s) mutable {
    for (EmbeddingBackwardArgs& a : tables) {
      a.accumulate = adds(s);
      k.embedding_backward(*c, a);
    }
  };
}

void check_grad(const View& v, const Node& node) {
  check_device_extent(embedding_grad_args(v, node, 0).R, kMostPassTokens, "tokens of a pass",
                      "lower train.micro_batch or data.seq_length");
}

}  // namespace

// They touch only the tokens' rows of a table: negligible cost.
void add_embedding_bindings(Bindings* bindings) {
  bindings->push_back({&kEmbeddingOp, no_workspace, bind_embedding, no_device_limits, no_cost,
                       no_wire, suits_device, no_shortening});
  bindings->push_back({&kEmbeddingGradOp, embedding_grad_workspace, bind_embedding_grad, check_grad,
                       no_cost, no_wire, suits_device, no_shortening});
}

}  // namespace weft
