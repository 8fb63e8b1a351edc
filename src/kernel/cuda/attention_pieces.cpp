// kernel/cuda/attention_pieces.cpp: how much of a batch cuDNN's backward takes at once.
//
// What one piece of r rows and h heads needs, with P = T up to a multiple of 128 and D to one of
// 64:
//   scores      r h P P 2      dS in bf16 (the deterministic algorithm alone)
//   dq          r h P D 4      sums in fp32 (the other one)
//   dk, dv    2 r h P D 4      of every query head, before heads of a group are added
//   sums      2 r h P 4        rowsum(dout * out), and room for one more
//   slack       16 MiB
// Not all are needed at once: it is an upper bound, compared with cuDNN's own word when it runs.
#include <algorithm>

#include "kernel/cuda/attention.h"

namespace weft::cuda {
namespace {

// A piece's scores stay below kPiece where several rows or groups could go together. One group
// alone may have kLargest; beyond it the own kernel serves, whose memory grows with T alone.
constexpr int64_t kPiece = int64_t{1} << 30;
constexpr int64_t kLargest = int64_t{4} << 30;
constexpr int64_t kSlack = int64_t{16} << 20;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Pieces of at most `most` out of n, as even as can be.
int64_t even(int64_t n, int64_t most) { return divide_up(n, divide_up(n, most)); }

}  // namespace

AttentionPieces attention_pieces(int64_t B, int64_t T, int64_t H, int64_t G, int64_t D) {
  const int64_t padded_t = divide_up(T, 128) * 128, padded_d = divide_up(D, 64) * 64;
  const int64_t group = H / G * padded_t * padded_t * 2;
  if (group > kLargest) return {0, 0, 0};
  AttentionPieces pieces{};
  pieces.groups = even(G, std::clamp(kPiece / group, int64_t{1}, G));
  pieces.rows = 1;
  if (pieces.groups == G) pieces.rows = even(B, std::clamp(kPiece / (G * group), int64_t{1}, B));
  const int64_t heads = pieces.rows * pieces.groups * (H / G);
  const int64_t of_head = padded_t * padded_t * 2 + 3 * padded_t * padded_d * 4 + 2 * padded_t * 4;
  pieces.bytes = static_cast<size_t>(heads * of_head + kSlack);
  return pieces;
}

}  // namespace weft::cuda
