// kernel/cuda/attention_drawn.cu: draws the mask of attention's dropout (attention_drawn.h).
#include <algorithm>

#include "kernel/cuda/attention.h"
#include "kernel/cuda/attention_drawn.h"
#include "kernel/cuda/launch.h"

namespace weft::cuda {
namespace {

constexpr size_t kMostMaskBytes = size_t{512} << 20;
constexpr int kThreads = 256;
constexpr int kUnits = 8;  // that a warp draws

// Lines of 16 queries and units of 32 keys, up to those that whole tiles reach.
int64_t num_lines(const AttentionOperands& args) { return ceil_div(args.T, 64) * 4; }
int64_t num_units(const AttentionOperands& args) { return ceil_div(args.S, 64) * 2; }

// Units that queries of a line may see, where keys lie at their own positions; else all.
struct Reach {
  bool causal;
  int window;
  __device__ int begin(int line) const {
    return window > 0 ? max(0, line * 16 - window + 1) / 32 : 0;
  }
  __device__ int end(int line, int units) const {
    return causal ? min(units, (line * 16 + 15) / 32 + 1) : units;
  }
};

// The same in every lane: tells the compiler that the rounds' keys need no arithmetic of their own
// in each.
__device__ __forceinline__ uint32_t first_lanes(uint32_t v) { return __shfl_sync(~0u, v, 0); }

// A warp draws up to kUnits units of a line of 16 queries of one head; those of a line follow each
// other.
__global__ void draw_mask_kernel(Dropout dropout, int lines, int units, Reach reach,
                                 uint16_t* mask) {
  const int warp =
      static_cast<int>(blockIdx.x) * (kThreads / 32) + static_cast<int>(threadIdx.x) / 32;
  const int per_line = (units + kUnits - 1) / kUnits;
  const int line = warp / per_line, first = warp % per_line * kUnits;
  const int begin = max(first, reach.begin(line)),
            end = min(first + kUnits, reach.end(line, units));
  if (line >= lines || begin >= end) return;
  const int b = static_cast<int>(blockIdx.z), h = static_cast<int>(blockIdx.y);
  const int lane = lane_of_warp();
  const DropoutKey of_lane = dropout.head(b, h),
                   key = {{first_lanes(of_lane.key[0]), first_lanes(of_lane.key[1])},
                          {first_lanes(of_lane.stream[0]), first_lanes(of_lane.stream[1])}};
  const auto query = static_cast<uint32_t>(line * 8 + lane / 4);
  uint16_t* to = mask + (((int64_t{b} * gridDim.y + h) * lines + line) * units) * 32 + lane;
  for (int unit = begin; unit < end; ++unit) {
    uint32_t bits = 0;
#pragma unroll
    for (int part = 0; part < 4; ++part) {  // squares, and of each two keys
      const auto at = static_cast<uint32_t>(unit * 16 + part / 2 * 8 + lane % 4 * 2 + part % 2);
      const PhiloxBlock words = dropout_words(key, query, at);
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        if (words.word[w] >= dropout.threshold) bits |= 1u << (part * 4 + w);
      }
    }
    to[unit * 32] = static_cast<uint16_t>(bits);
  }
}

}  // namespace

size_t drawn_bytes(const AttentionOperands& args) {
  if (args.dropout.rate == 0) return 0;
  const auto bytes = static_cast<size_t>(args.B * args.H * num_lines(args) * num_units(args) * 64);
  return bytes <= kMostMaskBytes ? bytes : 0;
}

Drawn drawn_mask(const AttentionOperands& args, const std::byte* mask) {
  const int64_t units = num_units(args);
  return {.dropout = dropout_of(args.dropout),
          .mask = drawn_bytes(args) == 0 ? nullptr : reinterpret_cast<const uint8_t*>(mask),
          .head_bytes = num_lines(args) * units * 64,
          .num_heads = static_cast<int>(args.H),
          .units = static_cast<int>(units)};
}

Drawn draw_mask(const Context& context, const AttentionOperands& args, std::byte* mask) {
  const Drawn drawn = drawn_mask(args, mask);
  if (drawn.mask == nullptr) return drawn;
  const int64_t lines = num_lines(args);
  const bool has_own_places = args.positions == args.source_positions;
  const Reach reach = {args.causal && has_own_places,
                       has_own_places ? static_cast<int>(std::min(args.window, args.S)) : 0};
  const int64_t warps = lines * ceil_div(drawn.units, kUnits);
  const dim3 blocks(static_cast<unsigned>(ceil_div(warps, kThreads / 32)),
                    static_cast<unsigned>(args.H), static_cast<unsigned>(args.B));
  launch(context, "attention: mask of dropout", draw_mask_kernel, blocks, dim3(kThreads), 0,
         drawn.dropout, static_cast<int>(lines), drawn.units, reach,
         reinterpret_cast<uint16_t*>(mask));
  return drawn;
}

}  // namespace weft::cuda
