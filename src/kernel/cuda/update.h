// kernel/cuda/update.h: an optimizer's update over one parameter, or over all in one launch.
//
// One pass over memory: in pure bf16, an update with two states moves 14 bytes per element. An
// optimizer provides its formula, for one element at a time:
//
//   struct Formula {
//     static constexpr int kStates;
//     struct Factors;  // of a step: formed in double, rounded once
//     static __host__ __device__ Factors factors_of(double grad_scale, bool decay,
//                                                   const OptimizerScalars& scalars);
//     // g is not scaled yet. kNarrow: parameter and states are kept in 8 bits of mantissa.
//     template <bool kNarrow>
//     static __device__ void step(const Factors& f, float g, float& p, float& s0, float& s1);
//   };
//
// The two states (an optimizer may have fewer) are separate members: nvcc would keep an array of
// them in local memory, and use more registers.
#pragma once

#include "kernel/cuda/dispatch.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/square_cells.h"
#include "kernel/device_kernels.h"

namespace weft::cuda {

inline constexpr int kUpdateThreads = 256;
inline constexpr int64_t kUpdateBlock = 16384;  // elements of a block
inline constexpr int kUpdateAhead = 2;  // vectors that a thread reads before it uses the first

// What one block updates: up to kUpdateBlock elements of a parameter, from `first` on.
struct UpdateSpan {
  void* p;
  float* master;
  const void* grad;
  void *state0, *state1;
  int64_t first, n;  // n of the whole parameter
  double* partials;  // of the whole parameter
  bool decay;
};

inline UpdateSpan span_of(const UpdateItem& item, int64_t first) {
  return {item.p, item.master, item.grad,     item.states[0], item.states[1],
          first,  item.n,      item.partials, item.decay};
}

template <typename T>
__host__ __device__ __forceinline__ const T& scalars_as(const OptimizerScalars& scalars) {
  static_assert(sizeof(T) <= sizeof(scalars.values));
  return *reinterpret_cast<const T*>(scalars.values);
}

template <typename Formula, typename P, typename Grad, typename State>
class Stepper {
 public:
  using Factors = typename Formula::Factors;
  static constexpr int kStates = Formula::kStates;
  static_assert(kStates <= kMaxUpdateStates);
  static constexpr bool kNarrow = sizeof(P) == 2 && (kStates == 0 || sizeof(State) == 2);
  static constexpr int kVector = kNarrow && sizeof(Grad) == 2 ? 8 : 4;
  static constexpr bool kCanSumSquares = kVector == kCellLane;

  __device__ __forceinline__ Stepper(const UpdateSpan& span, const Factors& factors)
      : p_(static_cast<P*>(span.p) + span.first),
        master_(span.master ? span.master + span.first : nullptr),
        grad_(static_cast<const Grad*>(span.grad) + span.first),
        state0_(kStates > 0 ? static_cast<State*>(span.state0) + span.first : nullptr),
        state1_(kStates > 1 ? static_cast<State*>(span.state1) + span.first : nullptr),
        f_(factors) {}

  // Addresses that allow vectors.
  __device__ __forceinline__ bool is_aligned() const {
    return ((reinterpret_cast<uintptr_t>(p_) | reinterpret_cast<uintptr_t>(master_) |
             reinterpret_cast<uintptr_t>(grad_) | reinterpret_cast<uintptr_t>(state0_) |
             reinterpret_cast<uintptr_t>(state1_)) %
            16) == 0;
  }

  template <int kWidth>
  struct Held {
    float master[kWidth];
    Raw<P, kWidth> p;
    Raw<Grad, kWidth> grad;
    Raw<State, (kStates > 0 ? kWidth : 1)> state0;
    Raw<State, (kStates > 1 ? kWidth : 1)> state1;
  };

  template <int kWidth>
  __device__ __forceinline__ void read(int i, Held<kWidth>& held) const {
    if (master_) {
      load(master_ + i, held.master);
    } else {
      held.p = load_raw<kWidth>(p_ + i);
    }
    held.grad = load_raw<kWidth>(grad_ + i);
    if constexpr (kStates > 0) held.state0 = load_raw<kWidth>(state0_ + i);
    if constexpr (kStates > 1) held.state1 = load_raw<kWidth>(state1_ + i);
  }

  template <int kWidth>
  __device__ __forceinline__ void step(int i, const Held<kWidth>& held) const {
    float p[kWidth], g[kWidth], state0[kWidth], state1[kWidth];
    if (!master_) unpack(held.p, p);
    unpack(held.grad, g);
    if constexpr (kStates > 0) unpack(held.state0, state0);
    if constexpr (kStates > 1) unpack(held.state1, state1);
#pragma unroll
    for (int k = 0; k < kWidth; ++k) {
      if (master_) p[k] = held.master[k];
      Formula::template step<kNarrow>(f_, g[k], p[k], state0[k], state1[k]);
    }
    if constexpr (kStates > 0) store(state0_ + i, state0);
    if constexpr (kStates > 1) store(state1_ + i, state1);
    if (master_) store(master_ + i, p);
    store(p_ + i, p);
  }

  // The squares of the cell that this warp holds; i: the thread's first element.
  __device__ __forceinline__ void add_cell(int i, const Held<kCellLane>& held,
                                           double* partials) const {
    float g[kCellLane];
    unpack(held.grad, g);
    const double sum = warp_sum(sum_of_squares(g));
    if (threadIdx.x % kWarp == 0) partials[i / static_cast<int>(kNormCell)] = sum;
  }
  // Those of the cells from element `begin`, where one begins, to `end`.
  __device__ __forceinline__ void add_other_cells(int begin, int end, double* partials) const {
    constexpr int kCell = static_cast<int>(kNormCell);
    const int lane = threadIdx.x % kWarp;
    for (int i = begin + threadIdx.x / kWarp * kCell; i < end;
         i += kUpdateThreads / kWarp * kCell) {
      float g[kCellLane];
      load_cell_lane(grad_ + i, lane, end - i, false, g);
      const double sum = warp_sum(sum_of_squares(g));
      if (lane == 0) partials[i / kCell] = sum;
    }
  }

 private:
  P* p_;
  float* master_;
  const Grad* grad_;
  State *state0_, *state1_;
  const Factors& f_;
};

// kSquares: a warp's vectors of one iteration are a cell, whose squares it stores; cells that are
// not whole are added before, from memory.
template <typename S, bool kSquares>
__device__ __forceinline__ void step_span(const UpdateSpan& span,
                                          const typename S::Factors& factors) {
  constexpr int kWidth = S::kVector, kStride = kUpdateThreads * kWidth;
  const S stepper(span, factors);
  const int n = static_cast<int>(min(kUpdateBlock, span.n - span.first));
  const int vectored = stepper.is_aligned() ? n - n % kWidth : 0;
  const int whole = kSquares ? vectored - vectored % static_cast<int>(kNormCell) : vectored;
  double* partials = kSquares ? span.partials + span.first / kNormCell : nullptr;
  if constexpr (kSquares) stepper.add_other_cells(whole, n, partials);
  int i = threadIdx.x * kWidth;
  for (; i + (kUpdateAhead - 1) * kStride < whole; i += kUpdateAhead * kStride) {
    typename S::template Held<kWidth> held[kUpdateAhead];
#pragma unroll
    for (int k = 0; k < kUpdateAhead; ++k) stepper.read(i + k * kStride, held[k]);
#pragma unroll
    for (int k = 0; k < kUpdateAhead; ++k) {
      stepper.step(i + k * kStride, held[k]);
      if constexpr (kSquares) stepper.add_cell(i + k * kStride, held[k], partials);
    }
  }
  for (; i < whole; i += kStride) {
    typename S::template Held<kWidth> held;
    stepper.read(i, held);
    stepper.step(i, held);
    if constexpr (kSquares) stepper.add_cell(i, held, partials);
  }
  for (i = whole + threadIdx.x * kWidth; kSquares && i < vectored; i += kStride) {
    typename S::template Held<kWidth> held;
    stepper.read(i, held);
    stepper.step(i, held);
  }
  for (i = vectored + threadIdx.x; i < n; i += kUpdateThreads) {
    typename S::template Held<1> held;
    stepper.read(i, held);
    stepper.step(i, held);
  }
}

template <typename Formula, typename P, typename Grad, typename State>
__global__ void __launch_bounds__(kUpdateThreads, 3)
    update_kernel(UpdateSpan span, typename Formula::Factors factors) {
  span.first = blockIdx.x * kUpdateBlock;
  step_span<Stepper<Formula, P, Grad, State>, false>(span, factors);
}

template <typename Formula, typename P, typename Grad, typename State, bool kSquares>
__global__ void __launch_bounds__(kUpdateThreads, 3)
    update_list_kernel(const UpdateSpan* spans, const UpdateScalars* scalars,
                       const float* known_scale) {
  __shared__ typename Formula::Factors factors;
  const float scale = kSquares ? static_cast<float>(1.0 / scalars->target_tokens) : *known_scale;
  if (scale != scale) return;  // a skipped step
  const UpdateSpan span = spans[blockIdx.x];
  if (threadIdx.x == 0) factors = Formula::factors_of(scale, span.decay, scalars->optimizer);
  __syncthreads();
  const typename Formula::Factors own = factors;
  step_span<Stepper<Formula, P, Grad, State>, kSquares>(span, own);
}

// fn(P{}, Grad{}, State{}). Gradients and states of fp16 are fp32; all states have one type.
template <typename Fn>
void with_update_types(Dtype p, Dtype grad, Dtype state, const Fn& fn) {
  with_type(p, [&](auto a) {
    using T = decltype(a);
    with_gradient_type<T>(
        grad, [&](auto b) { with_gradient_type<T>(state, [&](auto c) { fn(a, b, c); }); });
  });
}

// One parameter; scalars are those of its own decay.
template <typename Formula>
void launch_update(const Context& context, const char* name, const UpdateTypes& types,
                   const UpdateItem& item, double grad_scale, const OptimizerScalars& scalars) {
  const auto factors = Formula::factors_of(grad_scale, true, scalars);
  with_update_types(
      types.dtype, types.grad_dtype, types.state_dtypes[0], [&](auto p, auto grad, auto state) {
        launch(context, name, update_kernel<Formula, decltype(p), decltype(grad), decltype(state)>,
               ceil_div(item.n, kUpdateBlock), kUpdateThreads, 0, span_of(item, 0), factors);
      });
}

template <typename Formula>
void launch_update_list(const Context& context, const char* name, const UpdateListArgs& args) {
  const UpdateTypes& types = args.types;
  for (int s = 1; s < Formula::kStates; ++s) {
    if (types.state_dtypes[s] != types.state_dtypes[0])
      refuse("states of an update must have one dtype");
  }
  if (args.sums_squares && !can_sum_squares(types))
    refuse("only an update all in bf16 sums the squares of its gradients");
  with_update_types(
      types.dtype, types.grad_dtype, types.state_dtypes[0], [&](auto p, auto grad, auto state) {
        using P = decltype(p);
        using Grad = decltype(grad);
        using State = decltype(state);
        auto kernel = update_list_kernel<Formula, P, Grad, State, false>;
        if constexpr (Stepper<Formula, P, Grad, State>::kCanSumSquares) {
          if (args.sums_squares) kernel = update_list_kernel<Formula, P, Grad, State, true>;
        }
        launch(context, name, kernel, args.num_blocks, kUpdateThreads, 0,
               reinterpret_cast<const UpdateSpan*>(args.table), args.scalars, args.scale);
      });
}

}  // namespace weft::cuda
