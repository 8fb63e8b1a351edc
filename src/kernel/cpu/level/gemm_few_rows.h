// kernel/cpu/level/gemm_few_rows.h: a product of a few rows of A, as generation needs it, on ARM.
//
// Blocks and packed panels pay off where a panel is used by many rows. With a few rows the product
// takes as long as the weights take to read, so that they are read once, straight into registers:
// lines of B (k runs along the row) are turned there into the vectors that the tile would have got
// from a panel. An element's chain is the tile's: one multiply-add per step of k, in order.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernel/cpu/level/gemm_store.h"
#include "kernel/cpu/level/gemm_tile.h"

#if defined(__aarch64__)

namespace weft::WEFT_LEVEL {
namespace {

inline constexpr int64_t kFewRows = 4;
inline constexpr int64_t kFewColumns = 16;  // lines of B that advance together

// Lines of B that advance together. Their addresses stay in registers: one index serves them all.
// Meanwhile the lines that come next are fetched into the L2 cache, and two cache lines ahead into
// the L1 cache: rows are too short for the machine's own prefetcher.
template <typename T>
struct LineBlock {
  const std::byte* line[kFewColumns];
  int64_t ahead;  // bytes to the lines that come next

  [[gnu::always_inline]] const T* at(int i, int64_t k) const {
    return reinterpret_cast<const T*>(line[i] + k * static_cast<int64_t>(sizeof(T)));
  }
  // Once per cache line.
  [[gnu::always_inline]] void prefetch(int64_t k) const {
    const int64_t byte = k * static_cast<int64_t>(sizeof(T));
    if (byte % 64 != 0) return;
#pragma GCC unroll 16
    for (int i = 0; i < kFewColumns; ++i) {
      __builtin_prefetch(line[i] + (byte + 128), 0, 3);
      __builtin_prefetch(line[i] + (byte + ahead), 0, 2);
    }
  }
};

// fp32: four k of four lines are transposed, so that a vector has one k of four columns.
struct FloatLines {
  using Element = float;
  static constexpr int64_t kStep = 4;

  template <int kRows>
  static void multiply(const float* const* a, const LineBlock<float> lines, int64_t K,
                       float* tile) {
    float32x4_t sums[kRows][kFewColumns / 4] = {};
    for (int64_t k = 0; k < K; k += kStep) {
      lines.prefetch(k);
      float32x4_t left[kRows];
      for (int r = 0; r < kRows; ++r) left[r] = vld1q_f32(a[r] + k);
#pragma GCC unroll 4
      for (int j = 0; j < kFewColumns / 4; ++j) {
        float32x4_t line[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) line[i] = vld1q_f32(lines.at(4 * j + i, k));
        const float32x4_t t0 = vtrn1q_f32(line[0], line[1]), t1 = vtrn2q_f32(line[0], line[1]);
        const float32x4_t t2 = vtrn1q_f32(line[2], line[3]), t3 = vtrn2q_f32(line[2], line[3]);
        const auto low = [](float32x4_t x, float32x4_t y) {
          return vreinterpretq_f32_f64(
              vzip1q_f64(vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(y)));
        };
        const auto high = [](float32x4_t x, float32x4_t y) {
          return vreinterpretq_f32_f64(
              vzip2q_f64(vreinterpretq_f64_f32(x), vreinterpretq_f64_f32(y)));
        };
        const float32x4_t k0 = low(t0, t2), k1 = low(t1, t3), k2 = high(t0, t2), k3 = high(t1, t3);
        for (int r = 0; r < kRows; ++r) {
          float32x4_t sum = sums[r][j];
          sum = vfmaq_laneq_f32(sum, k0, left[r], 0);
          sum = vfmaq_laneq_f32(sum, k1, left[r], 1);
          sum = vfmaq_laneq_f32(sum, k2, left[r], 2);
          sums[r][j] = vfmaq_laneq_f32(sum, k3, left[r], 3);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < kFewColumns / 4; ++j)
        vst1q_f32(tile + r * kFewColumns + 4 * j, sums[r][j]);
    }
  }
};

#if defined(WEFT_LEVEL_neon_bf16)
// bf16: an instruction takes four k of two rows and of two lines; a missing row is zero, as in a
// panel.
struct Bf16Lines {
  using Element = Bf16;
  static constexpr int64_t kStep = 8;

  template <int kRows>
  static void multiply(const Bf16* const* a, const LineBlock<Bf16> lines, int64_t K, float* tile) {
    constexpr int kPairs = (kRows + 1) / 2;
    float32x4_t sums[kPairs][kFewColumns / 2] = {};
    const auto load = [](const Bf16* at) {
      return vreinterpretq_u64_bf16(vld1q_bf16(reinterpret_cast<const bfloat16_t*>(at)));
    };
    for (int64_t k = 0; k < K; k += kStep) {
      lines.prefetch(k);
      bfloat16x8_t first[kPairs], second[kPairs];
      for (int p = 0; p < kPairs; ++p) {
        const uint64x2_t upper = load(a[2 * p] + k);
        const uint64x2_t lower = 2 * p + 1 < kRows ? load(a[2 * p + 1] + k) : vdupq_n_u64(0);
        first[p] = vreinterpretq_bf16_u64(vzip1q_u64(upper, lower));
        second[p] = vreinterpretq_bf16_u64(vzip2q_u64(upper, lower));
      }
#pragma GCC unroll 8
      for (int j = 0; j < kFewColumns / 2; ++j) {
        const uint64x2_t left = load(lines.at(2 * j, k)), right = load(lines.at(2 * j + 1, k));
        const bfloat16x8_t low = vreinterpretq_bf16_u64(vzip1q_u64(left, right));
        const bfloat16x8_t high = vreinterpretq_bf16_u64(vzip2q_u64(left, right));
        for (int p = 0; p < kPairs; ++p) {
          sums[p][j] = vbfmmlaq_f32(sums[p][j], first[p], low);
          sums[p][j] = vbfmmlaq_f32(sums[p][j], second[p], high);
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int j = 0; j < kFewColumns / 2; ++j) {
        const float32x2_t two =
            r % 2 == 0 ? vget_low_f32(sums[r / 2][j]) : vget_high_f32(sums[r / 2][j]);
        vst1_f32(tile + r * kFewColumns + 2 * j, two);
      }
    }
  }
};
#endif

// The lines that the tile of a level takes of a type; void: it has none.
template <typename Source>
struct LinesOf {
  using Type = void;
};
template <>
struct LinesOf<float> {
  using Type = FloatLines;
};
#if defined(WEFT_LEVEL_neon_bf16)
template <>
struct LinesOf<Bf16> {
  using Type = Bf16Lines;
};
#endif

template <typename Source>
inline constexpr bool kHasLines = !std::is_void_v<typename LinesOf<Source>::Type>;

template <typename Source>
bool suits_few_rows(const GemmArgs& args) {
  return args.M <= kFewRows && args.M > 0 && args.N > 0 && args.b_transposed &&
         !args.a_transposed && args.K > 0 && args.K % LinesOf<Source>::Type::kStep == 0;
}

template <typename Source, typename Out>
class FewRows {
  using Lines = typename LinesOf<Source>::Type;

 public:
  explicit FewRows(const GemmArgs& args)
      : args_(args), b_(stacked_rows<const Source>(args.b)), sink_(make_sink<Out>(args)) {
    for (const void* bias : args.bias) has_bias_ = has_bias_ || bias != nullptr;
  }

  void run(const Context& context) const {
    const int64_t blocks = ceil_div(args_.N, kFewColumns), threads = context.pool->num_threads();
    const int64_t together = ceil_div(blocks, 4 * threads);
    context.pool->run(ceil_div(blocks, together), [&](int64_t task, int) {
      const int64_t end = std::min(blocks, (task + 1) * together);
      for (int64_t block = task * together; block < end; ++block) {
        // After its last block a thread probably continues with the task after the others'.
        const int64_t next = block + 1 + (block + 1 < end ? 0 : (threads - 1) * together);
        columns(block * kFewColumns, std::min(next, blocks - 1) * kFewColumns);
      }
    });
  }

 private:
  // Columns n and following. Past the last one its line is read again, and the result is dropped.
  // Those from next_n on are prefetched.
  void columns(int64_t n, int64_t next_n) const {
    const int64_t count = std::min(kFewColumns, args_.N - n);
    LineBlock<Source> lines;
    for (int64_t i = 0; i < kFewColumns; ++i)
      lines.line[i] = reinterpret_cast<const std::byte*>(b_.at(n + std::min(i, count - 1)));
    lines.ahead = reinterpret_cast<const std::byte*>(b_.at(next_n)) - lines.line[0];
    const Source* rows[kFewRows];
    for (int64_t r = 0; r < args_.M; ++r)
      rows[r] = static_cast<const Source*>(args_.a) + r * args_.lda;
    alignas(64) float tile[kFewRows * kFewColumns];
    switch (args_.M) {
      case 1:
        Lines::template multiply<1>(rows, lines, args_.K, tile);
        break;
      case 2:
        Lines::template multiply<2>(rows, lines, args_.K, tile);
        break;
      case 3:
        Lines::template multiply<3>(rows, lines, args_.K, tile);
        break;
      default:
        Lines::template multiply<4>(rows, lines, args_.K, tile);
    }
    float bias[kFewColumns];
    if (has_bias_) gather_bias(n, count, bias);
    store_tile<kFewColumns>(sink_, tile, 0, args_.M, n, count, has_bias_ ? bias : nullptr);
  }

  void gather_bias(int64_t n, int64_t count, float* to) const {
    int64_t begin = 0;
    for (int part = 0; part < args_.b.count; ++part) {
      const auto* bias = static_cast<const Source*>(args_.bias[part]);
      const int64_t end = begin + args_.b.rows[part];
      for (int64_t i = std::max(n, begin); i < std::min(n + count, end); ++i)
        to[i - n] = bias ? to_float(bias[i - begin]) : 0.0f;
      begin = end;
    }
  }

  const GemmArgs& args_;
  const Rows<const Source> b_;
  const Sink<Out> sink_;
  bool has_bias_ = false;
};

}  // namespace
}  // namespace weft::WEFT_LEVEL

#endif
