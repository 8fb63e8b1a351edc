// kernel/cuda/exact_sum.cu: sums without rounding (base/exact_sum.h), and the norm made of one.
//
// Every thread has its own long number in shared memory, so that no addition waits for another;
// limb i of thread t is at i * kThreads + t. The numbers of a block are summed, then added to the
// sum in device memory by integer additions, which may come in any order.
#include <algorithm>

#include "base/exact_sum.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 64;
constexpr int kLimbs = ExactSum::kLimbs, kTop = kLimbs - 1;
constexpr int kBias = 1088;  // the lowest limb's unit is 2^-1088
constexpr uint64_t kMask = 0xffffffff;
constexpr int64_t kMostBlocks = 528;
constexpr int64_t kAddends = 16;  // of a thread, before another block is worth it

__device__ __forceinline__ void add_one(double v, int64_t* limbs) {
  const uint64_t bits = static_cast<uint64_t>(__double_as_longlong(v));
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (exponent == 0x7ff) {
    ++limbs[kTop * kThreads];
    return;
  }
  if (exponent != 0) mantissa |= uint64_t{1} << 52;
  if (mantissa == 0) return;
  // v = mantissa * 2^(max(exponent, 1) - 1075)
  const int position = max(exponent, 1) - 1075 + kBias;
  const int shift = position % 32;
  const uint64_t low = mantissa << shift;
  const uint64_t high = shift == 0 ? 0 : mantissa >> (64 - shift);
  const int64_t sign = bits >> 63 != 0 ? -1 : 1;
  int64_t* to = limbs + position / 32 * kThreads;
  to[0] += sign * static_cast<int64_t>(low & kMask);
  to[kThreads] += sign * static_cast<int64_t>(low >> 32);
  to[2 * kThreads] += sign * static_cast<int64_t>(high);
}

__device__ __forceinline__ void normalize(int64_t* limbs) {
  for (int i = 0; i + 1 < kTop; ++i) {
    const int64_t carry = limbs[i] >> 32;  // towards minus infinity
    limbs[i] -= carry * (int64_t{1} << 32);
    limbs[i + 1] += carry;
  }
}

// is_whole: this is the only block, and also does the initialization and normalization.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    add_kernel(int64_t n, const T* x, int64_t* limbs, bool is_whole, bool clear) {
  WEFT_DYNAMIC_SHARED(int64_t, own);  // (kLimbs, kThreads)
  __shared__ int64_t total[kLimbs];
  for (int i = 0; i < kLimbs; ++i) own[i * kThreads + threadIdx.x] = 0;
  const int64_t step = int64_t{gridDim.x} * kThreads;
#pragma unroll 4
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += step) {
    add_one(static_cast<double>(x[i]), own + threadIdx.x);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kLimbs; i += kThreads) {
    int64_t sum = 0;
    for (int t = 0; t < kThreads; ++t) sum += own[i * kThreads + (t + i) % kThreads];
    if (is_whole) {
      total[i] = clear ? sum : limbs[i] + sum;
    } else if (sum != 0) {
      atomicAdd(reinterpret_cast<unsigned long long*>(limbs + i),
                static_cast<unsigned long long>(sum));
    }
  }
  if (!is_whole) return;
  __syncthreads();
  if (threadIdx.x == 0) normalize(total);
  __syncthreads();
  for (int i = threadIdx.x; i < kLimbs; i += kThreads) limbs[i] = total[i];
}

__global__ void __launch_bounds__(kThreads) normalize_kernel(int64_t* limbs) {
  __shared__ int64_t total[kLimbs];
  for (int i = threadIdx.x; i < kLimbs; i += kThreads) total[i] = limbs[i];
  __syncthreads();
  if (threadIdx.x == 0) normalize(total);
  __syncthreads();
  for (int i = threadIdx.x; i < kLimbs; i += kThreads) limbs[i] = total[i];
}

// The sum as a double, rounded once: ExactSum::value(). The limbs are changed.
__device__ double value_of(int64_t* limbs) {
  if (limbs[kTop] != 0) return __longlong_as_double(0x7ff8000000000000);  // NaN
  normalize(limbs);
  const bool is_negative = limbs[kTop - 1] < 0;
  if (is_negative) {
    for (int i = 0; i < kTop; ++i) limbs[i] = -limbs[i];
    normalize(limbs);
  }
  int top = kTop - 1;
  while (top > 0 && limbs[top] == 0) --top;
  const auto limb = [&](int i) { return i < 0 ? uint64_t{0} : static_cast<uint64_t>(limbs[i]); };
  if (limb(top) == 0) return 0.0;
  // The 64 highest bits, the rest as one sticky bit: then one rounding to 53.
  const int width = 64 - __clzll(static_cast<long long>(limb(top)));
  const uint64_t low = limb(top - 1) << 32 | limb(top - 2);
  const uint64_t high = width == 64 ? limb(top) : limb(top) << (64 - width);
  uint64_t mantissa = high | (width == 64 ? 0 : low >> width);
  bool is_sticky = (width == 64 ? low : low & ((uint64_t{1} << width) - 1)) != 0;
  for (int i = top - 3; i >= 0; --i) is_sticky = is_sticky || limb(i) != 0;
  mantissa |= is_sticky ? 1 : 0;
  const double magnitude = ldexp(static_cast<double>(mantissa), (top - 2) * 32 - kBias + width);
  return is_negative ? -magnitude : magnitude;
}

__global__ void __launch_bounds__(kThreads) norm_kernel(NormArgs args) {
  __shared__ int64_t limbs[kLimbs];
  for (int i = threadIdx.x; i < kLimbs; i += kThreads) limbs[i] = args.limbs[i];
  __syncthreads();
  if (threadIdx.x != 0) return;
  double per_token = 1.0 / args.scalars->target_tokens;
  if (args.loss_scale) per_token /= args.loss_scale->factor;
  const double norm = sqrt(value_of(limbs)) * per_token;
  double clip = 1.0;
  if (args.scalars->clip_norm > 0) {
    const double wanted = args.scalars->clip_norm / (norm + 1e-6);
    if (wanted < 1.0) clip = wanted;
  }
  *args.norm = norm;
  *args.scale = static_cast<float>(clip * per_token);
  if (!args.loss_scale) return;
  const bool overflowed = !(norm < INFINITY);                  // NaN too
  if (overflowed) *args.scale = __uint_as_float(0x7fc00000u);  // NaN
  *args.loss_scale = next_loss_scale(*args.loss_scale, overflowed);
}

}  // namespace

void exact_sum(const Context& context, const ExactSumArgs& args) {
  const int64_t blocks = std::clamp<int64_t>(ceil_div(args.n, kThreads * kAddends), 1, kMostBlocks);
  const size_t shared = sizeof(int64_t) * kLimbs * kThreads;
  const bool is_whole = blocks == 1;
  if (!is_whole && args.clear) {
    check(cudaMemsetAsync(args.limbs, 0, kLimbs * sizeof(int64_t), stream_of(context)),
          "memset of a sum");
  }
  if (args.dtype == Dtype::kF64) {
    launch(context, "exact_sum", add_kernel<double>, blocks, kThreads, shared, args.n, args.x,
           args.limbs, is_whole, args.clear);
  } else {
    launch(context, "exact_sum", add_kernel<float>, blocks, kThreads, shared, args.n, args.x,
           args.limbs, is_whole, args.clear);
  }
  if (!is_whole) {
    launch(context, "exact_sum's carries", normalize_kernel, 1, kThreads, 0, args.limbs);
  }
}

void norm(const Context& context, const NormArgs& args) {
  launch(context, "norm", norm_kernel, 1, kThreads, 0, args);
}

}  // namespace weft::cuda
