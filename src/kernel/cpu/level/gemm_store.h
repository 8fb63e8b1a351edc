// kernel/cpu/level/gemm_store.h: a finished tile on its way into C.
//
// result = round(chain + addends + C_old + bias): each added once, in fp32, in that order.
#pragma once

#include <bit>

#include "kernel/cpu/level/gemm_intrinsics.h"
#include "kernel/cpu/level/gemm_operand.h"
#include "kernel/cpu/level/gemm_shuffle.h"

namespace weft::WEFT_LEVEL {
namespace {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
#elif defined(__AVX2__)
inline constexpr int kLanes = 8;
#else
inline constexpr int kLanes = 4;
#endif
typedef float Floats __attribute__((vector_size(kLanes * 4)));
typedef uint32_t Words __attribute__((vector_size(kLanes * 4)));
typedef uint16_t Halves __attribute__((vector_size(kLanes * 2)));

[[gnu::always_inline]] inline Floats widen(const float* from) { return load_vector<Floats>(from); }
[[gnu::always_inline]] inline Floats widen(const Bf16* from) {
  return std::bit_cast<Floats>(__builtin_convertvector(load_vector<Halves>(from), Words) << 16);
}

[[gnu::always_inline]] inline void narrow(Floats v, float* to) { store_vector(to, v); }
// to_bf16 of every lane. (AVX-512's instruction cannot be used: it flushes subnormals.)
[[gnu::always_inline]] inline void narrow(Floats v, Bf16* to) {
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  vst1_bf16(reinterpret_cast<bfloat16_t*>(to), vcvt_bf16_f32(std::bit_cast<float32x4_t>(v)));
#else
  const Words u = std::bit_cast<Words>(v);
  const Words rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const Words quiet = (u >> 16) | 0x40u;
  const Words result = (u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded;
  store_vector(to, __builtin_convertvector(result, Halves));
#endif
}

[[gnu::always_inline]] inline void narrow_one(float v, float* to) { *to = v; }
[[gnu::always_inline]] inline void narrow_one(float v, Bf16* to) { *to = to_bf16(v); }

template <typename Out>
struct Sink {
  Rows<Out> rows;
  bool accumulate;
  int num_addends;
  Rows<const float> addends[kMaxAddends];
};

template <typename Out>
Sink<Out> make_sink(const GemmArgs& args) {
  Sink<Out> sink{stacked_rows<Out>(args.c), args.accumulate, args.num_addends, {}};
  for (int i = 0; i < args.num_addends; ++i) {
    sink.addends[i] = stacked_rows<const float>(args.addend[i]);
  }
  return sink;
}

// tile (rows, kNr) holds columns [n, n + cols) of C's rows from m on. bias: of column n, or null.
template <int kNr, typename Out>
void store_tile(const Sink<Out>& sink, const float* tile, int64_t m, int64_t rows, int64_t n,
                int64_t cols, const float* bias) {
  for (int64_t i = 0; i < rows; ++i, tile += kNr) {
    Out* c = sink.rows.at(m + i) + n;
    const float* addends[kMaxAddends];
    for (int a = 0; a < sink.num_addends; ++a) addends[a] = sink.addends[a].at(m + i) + n;
    if (cols == kNr) {
      for (int j = 0; j < kNr; j += kLanes) {
        Floats v = load_vector<Floats>(tile + j);
        for (int a = 0; a < sink.num_addends; ++a) v += load_vector<Floats>(addends[a] + j);
        if (sink.accumulate) v += widen(c + j);
        if (bias) v += load_vector<Floats>(bias + j);
        narrow(v, c + j);
      }
    } else {
      for (int64_t j = 0; j < cols; ++j) {
        float v = tile[j];
        for (int a = 0; a < sink.num_addends; ++a) v += addends[a][j];
        if (sink.accumulate) v += to_float(c[j]);
        if (bias) v += bias[j];
        narrow_one(v, c + j);
      }
    }
  }
}

}  // namespace
}  // namespace weft::WEFT_LEVEL
