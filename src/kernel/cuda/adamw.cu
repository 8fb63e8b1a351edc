// kernel/cuda/adamw.cu: the optimizer's step over one parameter, or over all in one launch.
//
// One pass over memory: 14 bytes per parameter in pure bf16. The arithmetic is that of
// kernel/cpu/level/adamw.cpp.
#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlock = 16384;  // elements of a block
constexpr int kAhead = 2;          // vectors that a thread reads before it uses the first

struct Factors {
  float grad_scale, keep, one_minus_beta1, beta2, one_minus_beta2, step, root_scale, eps;
};

// Formed in double and rounded once, as torch does. weight_decay 0: none.
__host__ __device__ Factors factors_of(double grad_scale, double weight_decay,
                                       const UpdateScalars& s) {
  return {static_cast<float>(grad_scale),          static_cast<float>(1.0 - s.lr * weight_decay),
          static_cast<float>(1.0 - s.beta1),       static_cast<float>(s.beta2),
          static_cast<float>(1.0 - s.beta2),       static_cast<float>(s.lr / s.bias1),
          static_cast<float>(1.0 / sqrt(s.bias2)), static_cast<float>(s.eps)};
}

// What one block updates: up to kBlock elements of a parameter, from `first` on.
struct Span {
  void* p;
  float* master;
  const void* grad;
  void *m, *v;
  int64_t first, n;  // n of the whole parameter
  bool decay;
};

template <typename P, typename Grad, typename State>
class Stepper {
 public:
  // Results stored in bf16 (8 bits of precision) need no exact root and quotient.
  static constexpr bool kNarrow = sizeof(P) == 2 && sizeof(State) == 2;
  static constexpr int kVector = kNarrow && sizeof(Grad) == 2 ? 8 : 4;

  __device__ __forceinline__ Stepper(const Span& span, const Factors& factors)
      : p_(static_cast<P*>(span.p) + span.first),
        master_(span.master ? span.master + span.first : nullptr),
        grad_(static_cast<const Grad*>(span.grad) + span.first),
        m_(static_cast<State*>(span.m) + span.first),
        v_(static_cast<State*>(span.v) + span.first),
        f_(factors) {}

  // Addresses that allow vectors.
  __device__ __forceinline__ bool is_aligned() const {
    return ((reinterpret_cast<uintptr_t>(p_) | reinterpret_cast<uintptr_t>(master_) |
             reinterpret_cast<uintptr_t>(grad_) | reinterpret_cast<uintptr_t>(m_) |
             reinterpret_cast<uintptr_t>(v_)) %
            16) == 0;
  }

  template <int kWidth>
  struct Held {
    float master[kWidth];
    Raw<P, kWidth> p;
    Raw<Grad, kWidth> grad;
    Raw<State, kWidth> m, v;
  };

  template <int kWidth>
  __device__ __forceinline__ void read(int i, Held<kWidth>& held) const {
    if (master_) {
      load(master_ + i, held.master);
    } else {
      held.p = load_raw<kWidth>(p_ + i);
    }
    held.grad = load_raw<kWidth>(grad_ + i);
    held.m = load_raw<kWidth>(m_ + i);
    held.v = load_raw<kWidth>(v_ + i);
  }

  template <int kWidth>
  __device__ __forceinline__ void step(int i, const Held<kWidth>& held) const {
    float p[kWidth], g[kWidth], m[kWidth], v[kWidth];
    if (!master_) unpack(held.p, p);
    unpack(held.grad, g);
    unpack(held.m, m);
    unpack(held.v, v);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (master_) p[k] = held.master[k];
      g[k] *= f_.grad_scale;
      m[k] = fmaf(g[k] - m[k], f_.one_minus_beta1, m[k]);
      v[k] = fmaf(f_.one_minus_beta2 * g[k], g[k], v[k] * f_.beta2);
      p[k] = p[k] * f_.keep - quotient(f_.step * m[k], fmaf(root(v[k]), f_.root_scale, f_.eps));
    }
    store(m_ + i, m);
    store(v_ + i, v);
    if (master_) store(master_ + i, p);
    store(p_ + i, p);
  }

 private:
  static __device__ __forceinline__ float root(float v) {
    if constexpr (kNarrow) return sqrt_for(Bf16{}, v);
    return sqrtf(v);
  }
  static __device__ __forceinline__ float quotient(float a, float b) {
    if constexpr (kNarrow) return divide_for(Bf16{}, a, b);
    return a / b;
  }

  P* p_;
  float* master_;
  const Grad* grad_;
  State *m_, *v_;
  const Factors& f_;
};

template <typename P, typename Grad, typename State>
__device__ __forceinline__ void step_span(const Span& span, const Factors& factors) {
  using S = Stepper<P, Grad, State>;
  constexpr int kWidth = S::kVector, kStride = kThreads * kWidth;
  const S stepper(span, factors);
  const int n = static_cast<int>(min(kBlock, span.n - span.first));
  const int vectored = stepper.is_aligned() ? n - n % kWidth : 0;
  int i = threadIdx.x * kWidth;
  for (; i + (kAhead - 1) * kStride < vectored; i += kAhead * kStride) {
    typename S::template Held<kWidth> held[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) stepper.read(i + k * kStride, held[k]);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) stepper.step(i + k * kStride, held[k]);
  }
  for (; i < vectored; i += kStride) {
    typename S::template Held<kWidth> held;
    stepper.read(i, held);
    stepper.step(i, held);
  }
  for (i = vectored + threadIdx.x; i < n; i += kThreads) {
    typename S::template Held<1> held;
    stepper.read(i, held);
    stepper.step(i, held);
  }
}

template <typename P, typename Grad, typename State>
__global__ void __launch_bounds__(kThreads, 3) adamw_kernel(Span span, Factors factors) {
  span.first = blockIdx.x * kBlock;
  step_span<P, Grad, State>(span, factors);
}

template <typename P, typename Grad, typename State>
__global__ void __launch_bounds__(kThreads, 3)
    adamw_list_kernel(const Span* spans, const UpdateScalars* scalars, const float* scale) {
  __shared__ Factors factors;
  if (*scale != *scale) return;  // a skipped step
  const Span span = spans[blockIdx.x];
  if (threadIdx.x == 0) {
    factors = factors_of(*scale, span.decay ? scalars->weight_decay : 0.0, *scalars);
  }
  __syncthreads();
  const Factors own = factors;
  step_span<P, Grad, State>(span, own);
}

// fn(P{}, Grad{}, State{}). Gradients and states of fp16 are fp32.
template <typename Fn>
void with_types(Dtype p, Dtype grad, Dtype state, const Fn& fn) {
  with_type(p, [&](auto a) {
    using P = decltype(a);
    with_gradient_type<P>(
        grad, [&](auto b) { with_gradient_type<P>(state, [&](auto c) { fn(a, b, c); }); });
  });
}

}  // namespace

void adamw(const Context& context, const AdamwArgs& args) {
  const UpdateScalars scalars = {.target_tokens = 0,
                                 .clip_norm = 0,
                                 .lr = args.lr,
                                 .beta1 = args.beta1,
                                 .beta2 = args.beta2,
                                 .eps = args.eps,
                                 .weight_decay = args.weight_decay,
                                 .bias1 = args.bias1,
                                 .bias2 = args.bias2};
  const Factors factors = factors_of(args.grad_scale, args.weight_decay, scalars);
  const Span span = {args.p, args.master, args.grad, args.m, args.v, 0, args.n, true};
  with_types(args.dtype, args.grad_dtype, args.state_dtype, [&](auto p, auto grad, auto state) {
    launch(context, "adamw", adamw_kernel<decltype(p), decltype(grad), decltype(state)>,
           ceil_div(args.n, kBlock), kThreads, 0, span, factors);
  });
}

size_t adamw_table_bytes(const AdamwItem* items, int64_t count) {
  int64_t blocks = 0;
  for (int64_t i = 0; i < count; ++i) blocks += ceil_div(items[i].n, kBlock);
  return static_cast<size_t>(blocks) * sizeof(Span);
}

int64_t adamw_table(const AdamwItem* items, int64_t count, std::byte* table) {
  Span* to = reinterpret_cast<Span*>(table);
  for (int64_t i = 0; i < count; ++i) {
    const AdamwItem& item = items[i];
    for (int64_t first = 0; first < item.n; first += kBlock) {
      *to++ = {item.p, item.master, item.grad, item.m, item.v, first, item.n, item.decay};
    }
  }
  return to - reinterpret_cast<Span*>(table);
}

void adamw_list(const Context& context, const AdamwListArgs& args) {
  with_types(args.dtype, args.grad_dtype, args.state_dtype, [&](auto p, auto grad, auto state) {
    launch(context, "adamw_list", adamw_list_kernel<decltype(p), decltype(grad), decltype(state)>,
           args.num_blocks, kThreads, 0, reinterpret_cast<const Span*>(args.table), args.scalars,
           args.scale);
  });
}

}  // namespace weft::cuda
