// comm/reduce.cpp: the tree over ranks, a block of elements at a time.
//
// The tree of n addends is that of the largest power of two below n, plus that of the rest. A block
// is small enough for the partial sums of every level to stay in the nearest cache, so memory is
// read once per addend and written once. The inner loops are simple enough for the compiler to
// vectorize.
#include "comm/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"

// Before a loop whose output is identical to an input or disjoint from all: iterations are
// independent.
#if defined(__clang__)
#define WEFT_ALIKE_OR_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define WEFT_ALIKE_OR_APART _Pragma("GCC ivdep")
#endif

namespace weft {
namespace {

constexpr int64_t kBlock = 512;
constexpr int kMaxRanks = 1024;
constexpr int kLevels = 20;  // two per halving, for kMaxRanks

struct Sum {
  static float of(float a, float b) { return a + b; }
  static double of(double a, double b) { return a + b; }
  static int64_t of(int64_t a, int64_t b) {
    return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
};

struct Max {
  static int64_t of(int64_t a, int64_t b) { return a > b ? a : b; }
  template <typename T>
  static T of(T a, T b) {
    return (a > b || std::isnan(a)) ? a : b;
  }
};

template <typename T>
T widen(T v) {
  return v;
}
float widen(Bf16 v) { return to_float(v); }
float widen(Half v) { return to_float(v); }

template <typename T>
void narrow(T v, T* out) {
  *out = v;
}
// to_bf16 without a branch, which would prevent vectorization.
void narrow(float v, Bf16* out) {
  const uint32_t u = std::bit_cast<uint32_t>(v);
  const uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u), quiet_nan = u | 0x400000u;
  out->bits = static_cast<uint16_t>((std::isnan(v) ? quiet_nan : rounded) >> 16);
}

void narrow(float v, Half* out) { *out = to_half(v); }

// T as stored, A as added.
template <typename T, typename Op>
struct Tree {
  using A = decltype(widen(T{}));
  const T* const* in;
  A partial[kLevels][kBlock];

  // in[first .. first + n) over elements [start, start + len) into out.
  template <typename Out>
  void evaluate(int first, int n, int64_t start, int64_t len, int level, Out* out) {
    if (n == 1) {
      const T* a = in[first] + start;
      WEFT_ALIKE_OR_APART
      for (int64_t i = 0; i < len; ++i) narrow(widen(a[i]), out + i);
    } else if (n == 2) {
      combine(in[first] + start, in[first + 1] + start, len, out);
    } else {
      const int left = static_cast<int>(std::bit_floor(static_cast<unsigned>(n - 1)));
      A* sum = partial[level];
      evaluate(first, left, start, len, level + 1, sum);
      if (n - left == 1) {
        combine(sum, in[first + left] + start, len, out);
      } else {
        A* rest = partial[level + 1];
        evaluate(first + left, n - left, start, len, level + 2, rest);
        combine(sum, rest, len, out);
      }
    }
  }

  // out is apart from a and b, or the same as one of them.
  template <typename L, typename R, typename Out>
  [[gnu::noinline]] static void combine(const L* a, const R* b, int64_t len, Out* out) {
    WEFT_ALIKE_OR_APART
    for (int64_t i = 0; i < len; ++i) narrow(Op::of(widen(a[i]), widen(b[i])), out + i);
  }
};

template <typename T, typename Op>
void run(const void* const* in, int n, void* out, int64_t count) {
  if (n < 1 || n > kMaxRanks) throw BugError(fmt::format("cannot sum over {} ranks", n));
  const T* inputs[kMaxRanks];
  for (int r = 0; r < n; ++r) inputs[r] = static_cast<const T*>(in[r]);
  Tree<T, Op> tree;  // not initialised: partial sums are written before they are read
  tree.in = inputs;
  for (int64_t start = 0; start < count; start += kBlock) {
    const int64_t len = std::min(kBlock, count - start);
    tree.evaluate(0, n, start, len, 0, static_cast<T*>(out) + start);
  }
}

template <typename T>
void run(const void* const* in, int n, void* out, int64_t count, Reduce op) {
  if (op == Reduce::kSum) {
    run<T, Sum>(in, n, out, count);
  } else {
    run<T, Max>(in, n, out, count);
  }
}

}  // namespace

void reduce_tree(const void* const* in, int n, void* out, int64_t count, Dtype dtype, Reduce op) {
  switch (dtype) {
    case Dtype::kF32:
      return run<float>(in, n, out, count, op);
    case Dtype::kBf16:
      return run<Bf16>(in, n, out, count, op);
    case Dtype::kF16:
      return run<Half>(in, n, out, count, op);
    case Dtype::kF64:
      return run<double>(in, n, out, count, op);
    case Dtype::kI64:
      return run<int64_t>(in, n, out, count, op);
    default:
      throw BugError(fmt::format("cannot sum {} over ranks", dtype_name(dtype)));
  }
}

}  // namespace weft
