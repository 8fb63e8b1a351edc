// exec/executor.cpp: binding happens once; the loop calls and counts.
#include "exec/executor.h"

#include <sys/mman.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "exec/head.h"
#include "exec/node_args.h"

namespace weft {

Arena::Arena(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* at = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(at != MAP_FAILED, "cannot take {} bytes of memory: {}", bytes, std::strerror(errno));
  // Large pages: a step touches hundreds of megabytes, and small pages cost translation misses.
  ::madvise(at, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(at);
}

Arena::~Arena() {
  if (data_) ::munmap(data_, static_cast<size_t>(bytes_));
}

Executor::Executor(const Plan& plan, const ArenaLayout& layout, const Arena& arena,
                   ThreadPool* pool)
    : plan_(plan),
      kernels_(*plan.options.kernels),
      context_{pool, arena.data() + layout.workspace_offset(),
               static_cast<size_t>(layout.workspace_bytes())},
      data_(plan.graph.values.size(), nullptr),
      calls_(kNumOps, 0) {
  ensure(pool->num_threads() <= plan.options.num_threads,
         "more threads than the plan was made for");
  for (size_t i = 0; i < data_.size(); ++i) {
    const Place& place = plan.memory.places[i];
    if (place.region == Place::Region::kStep) {
      data_[i] = arena.data() + layout.step_offset() + place.offset;
    } else if (place.region == Place::Region::kPersistent) {
      data_[i] = arena.data() + layout.offset(plan.graph.values[i].name);
    }
  }
  for (const Node& n : plan.graph.pass) pass_.push_back(bind(n));
  for (const Node& n : plan.graph.finish) finish_.push_back(bind(n));
}

std::byte* Executor::find(const std::string& name) const {
  const auto ref = plan_.graph.find(name);
  return ref ? data_[static_cast<size_t>(ref->id)] : nullptr;
}

void Executor::run(const std::vector<Node>& nodes, const std::vector<Call>& list,
                   const StepScalars& scalars) {
  for (size_t i = 0; i < list.size(); ++i) {
    list[i](scalars);
    ++calls_[static_cast<size_t>(nodes[i].op)];
  }
}

void Executor::run_pass(const StepScalars& scalars) { run(plan_.graph.pass, pass_, scalars); }
void Executor::run_finish(const StepScalars& scalars) { run(plan_.graph.finish, finish_, scalars); }

Executor::Call Executor::bind(const Node& node) {
  const View v{plan_.graph, data_};
  const Kernels& k = kernels_;
  const Context* c = &context_;
  const bool first = node.attr.first_writer;
  switch (node.op) {
    case Op::kEmbedding:
      return [=, &k, a = embedding_args(v, node)](const StepScalars&) { k.embedding(*c, a); };
    case Op::kLinear:
      return [=, &k, a = linear_args(v, node)](const StepScalars&) { k.gemm(*c, a); };
    case Op::kLinearDx:
      return [=, &k, a = linear_dx_args(v, node)](const StepScalars&) { k.gemm(*c, a); };
    case Op::kLinearDw:
      return [=, &k, a = linear_dw_args(v, node)](const StepScalars& s) mutable {
        a.accumulate = !first || s.pass > 0;
        k.gemm(*c, a);
      };
    case Op::kBiasGrad:
      return [=, &k, a = bias_grad_args(v, node)](const StepScalars& s) mutable {
        a.accumulate = !first || s.pass > 0;
        k.bias_backward(*c, a);
      };
    case Op::kEmbeddingGrad:
      return [=, &k, a = embedding_grad_args(v, node)](const StepScalars& s) mutable {
        a.accumulate = !first || s.pass > 0;
        k.embedding_backward(*c, a);
      };
    case Op::kRmsNorm:
      return [=, &k, a = rmsnorm_args(v, node)](const StepScalars&) { k.rmsnorm(*c, a); };
    case Op::kRmsNormApply:
      return [=, &k, a = rmsnorm_apply_args(v, node)](const StepScalars&) { k.rmsnorm(*c, a); };
    case Op::kRmsNormGrad:
      return [=, &k, a = rmsnorm_grad_args(v, node)](const StepScalars& s) mutable {
        a.accumulate = !first || s.pass > 0;
        k.rmsnorm_backward(*c, a);
      };
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
    case Op::kHeadLossGrad:
      return [=, &k, a = head_args(v, node)](const StepScalars& s) mutable {
        a.accumulate = !first || s.pass > 0;
        run_head(k, *c, a);
      };
    case Op::kHeadLogits:
      return
          [=, &k, a = head_logits_args(v, node)](const StepScalars&) { run_head_logits(k, *c, a); };
    case Op::kSquares:
      return [=, &k, a = squares_args(v, node)](const StepScalars&) { k.squares(*c, a); };
    default:
      return bind_scalar(node);
  }
}

// Nodes whose work is a few scalars, or whose arguments come from the step's scalars.
Executor::Call Executor::bind_scalar(const Node& node) {
  const View v{plan_.graph, data_};
  if (node.op == Op::kLossSum) {
    const float* losses = v.at<float>(node.inputs[0]);
    const int64_t n = num_elements(plan_.graph[node.inputs[0]].shape);
    double* sum = v.at<double>(node.outputs[0]);
    return [=](const StepScalars& s) {
      double total = s.pass == 0 ? 0 : *sum;
      for (int64_t i = 0; i < n; ++i) total += losses[i];
      *sum = total;
    };
  }
  if (node.op == Op::kNorm) {
    std::vector<std::pair<const double*, int64_t>> partials;
    for (Ref r : node.inputs)
      partials.emplace_back(v.at<double>(r), num_elements(plan_.graph[r].shape));
    double* norm = v.at<double>(node.outputs[0]);
    float* scale = v.at<float>(node.outputs[1]);
    return [=](const StepScalars& s) {
      double total = 0;
      for (const auto& [cells, n] : partials) {
        double tensor = 0;
        for (int64_t i = 0; i < n; ++i) tensor += cells[i];
        total += tensor;
      }
      const double per_token = 1.0 / static_cast<double>(s.target_tokens);
      *norm = std::sqrt(total) * per_token;
      const double clip = s.clip_norm > 0 ? std::min(1.0, s.clip_norm / (*norm + 1e-6)) : 1.0;
      *scale = static_cast<float>(clip * per_token);
    };
  }
  ensure(node.op == Op::kAdamw, std::string(op_name(node.op)) + " cannot be bound");
  const Kernels& k = kernels_;
  const Context* c = &context_;
  const float* scale = v.at<float>(node.inputs[2]);
  return [=, &k, a = adamw_args(v, node), decay = node.attr.decay](const StepScalars& s) mutable {
    a.grad_scale = *scale;
    a.lr = s.lr;
    a.beta1 = s.beta1;
    a.beta2 = s.beta2;
    a.eps = s.eps;
    a.weight_decay = decay ? s.weight_decay : 0;
    a.bias1 = 1 - std::pow(s.beta1, static_cast<double>(s.update));
    a.bias2 = 1 - std::pow(s.beta2, static_cast<double>(s.update));
    k.adamw(*c, a);
  };
}

}  // namespace weft
