// exec/bind.cpp: each node becomes one call with its arguments.
#include "base/error.h"
#include "exec/bind_collectives.h"
#include "exec/executor.h"
#include "exec/head.h"
#include "exec/node_args.h"
#include "exec/products.h"

namespace weft {

// Gradients that are made anew every pass (leaves, buckets that are cut at once) are stored.
bool Executor::adds_to_earlier_passes(const Node& node) const {
  const Ref gradient =
      node.outputs.back();      // of several they are alike; what else it writes is before
  if (!gradient) return false;  // the parameter is frozen
  return plan_.graph[plan_.graph.storage_of(gradient).root].kind == ValueKind::kGradient;
}

Executor::Call Executor::bind_products(const Node& node, const Context& context) {
  const View v{plan_.graph, data_};
  const Kernels& k = kernels_;
  const Products made = make_products(v, node, context.workspace);
  const Context c{context.pool, context.workspace + made.partial_bytes,
                  context.workspace_bytes - static_cast<size_t>(made.partial_bytes),
                  context.stream};
  const std::vector<GemmArgs> calls = made.calls;
  if (node.op != Op::kLinearDw) {
    return [=, &k](const StepScalars&) {
      for (const GemmArgs& a : calls) k.gemm(c, a);
    };
  }
  if (node.attr.slots > 0) {
    return [=, &k, attr = node.attr](const StepScalars& s) {
      for (const GemmArgs& a : calls) {
        k.gemm(c, into_slots(a, s.pass, attr.group_leaves, attr.slot_stride));
      }
    };
  }
  const bool first = node.attr.first_writer, adds = adds_to_earlier_passes(node);
  return [=, &k](const StepScalars& s) mutable {
    for (GemmArgs a : calls) {
      a.accumulate = !first || (adds && s.pass > 0);
      k.gemm(c, a);
    }
  };
}

Executor::Call Executor::bind(const Node& node, const Context* c) {
  const View v{plan_.graph, data_};
  const Kernels& k = kernels_;
  if (Call call; kernels_.device && bind_on_device(node, c, &call)) return call;
  switch (node.op) {
    case Op::kEmbedding: {
      std::vector<EmbeddingArgs> tables;
      for (int p = 0; p < node.attr.parts; ++p) tables.push_back(embedding_args(v, node, p));
      return [=, &k](const StepScalars&) {
        for (const EmbeddingArgs& a : tables) k.embedding(*c, a);
      };
    }
    case Op::kLinear:
    case Op::kLinearDx:
    case Op::kLinearDw:
      return bind_products(node, *c);
    case Op::kBiasGrad:
    case Op::kEmbeddingGrad:
    case Op::kRmsNormGrad:
    case Op::kHeadLossGrad:
      return bind_gradient(node, c);
    case Op::kRmsNorm:
      return [=, &k, a = rmsnorm_args(v, node)](const StepScalars&) { k.rmsnorm(*c, a); };
    case Op::kRmsNormApply:
      return [=, &k, a = rmsnorm_apply_args(v, node)](const StepScalars&) { k.rmsnorm(*c, a); };
    case Op::kRope:
    case Op::kRopeInverse:
      return [=, &k, a = rope_args(v, node)](const StepScalars&) { k.rope(*c, a); };
    case Op::kAttention:
      return [=, &k, a = attention_args(v, node)](const StepScalars&) { k.attention(*c, a); };
    case Op::kAttentionGrad:
      return [=, &k, a = attention_grad_args(v, node)](const StepScalars&) {
        k.attention_backward(*c, a);
      };
    case Op::kCachedAttention:
      return [=, &k, a = cached_attention_args(v, node)](const StepScalars&) {
        k.cached_attention(*c, a);
      };
    case Op::kSwiglu:
      return [=, &k, a = swiglu_args(v, node)](const StepScalars&) { k.swiglu(*c, a); };
    case Op::kSwigluGrad:
      return
          [=, &k, a = swiglu_grad_args(v, node)](const StepScalars&) { k.swiglu_backward(*c, a); };
    case Op::kAdd:
      return [=, &k, a = add_args(v, node)](const StepScalars&) { k.add(*c, a); };
    case Op::kHeadLoss:
      return [=, head = Head(k, head_args(v, node, mesh_), *c)](const StepScalars&) {
        head.run(*c, false);
      };
    case Op::kHeadLogits:
      return
          [=, &k, a = head_logits_args(v, node)](const StepScalars&) { run_head_logits(k, *c, a); };
    case Op::kSquares:
      return [=, &k, a = squares_args(v, node)](const StepScalars&) { k.squares(*c, a); };
    case Op::kAccumulate:
      return bind_accumulate(v, node, {&k, c, device_});
    default:
      if (!is_collective(node.op)) return bind_scalar(node, c);
      return bind_collective(v, node, mesh_,
                             {&k, node.attr.beside ? &beside_context_ : c, device_});
  }
}

// Writers of parameters' gradients besides the products.
Executor::Call Executor::bind_gradient(const Node& node, const Context* c) {
  const View v{plan_.graph, data_};
  const Kernels& k = kernels_;
  const bool first = node.attr.first_writer, adds = adds_to_earlier_passes(node);
  const auto accumulates = [=](const StepScalars& s) { return !first || (adds && s.pass > 0); };
  switch (node.op) {
    case Op::kBiasGrad:
      return [=, &k, a = bias_grad_args(v, node)](const StepScalars& s) mutable {
        a.accumulate = accumulates(s);
        k.bias_backward(*c, a);
      };
    case Op::kEmbeddingGrad: {
      std::vector<EmbeddingBackwardArgs> tables;
      for (size_t p = 0; p < node.outputs.size(); ++p) {
        tables.push_back(embedding_grad_args(v, node, static_cast<int>(p)));
      }
      return [=, &k](const StepScalars& s) mutable {
        for (EmbeddingBackwardArgs& a : tables) {
          a.accumulate = accumulates(s);
          k.embedding_backward(*c, a);
        }
      };
    }
    case Op::kRmsNormGrad:
      return [=, &k, a = rmsnorm_grad_args(v, node)](const StepScalars& s) mutable {
        a.accumulate = accumulates(s);
        k.rmsnorm_backward(*c, a);
      };
    default:
      ensure(node.op == Op::kHeadLossGrad, fmt::format("{} cannot be bound", op_name(node.op)));
      return [=, head = Head(k, head_args(v, node, mesh_), *c)](const StepScalars& s) {
        head.run(*c, accumulates(s));
      };
  }
}

}  // namespace weft
