// kernel/cuda/attention_pieces.h: how much of a batch cuDNN's backward processes at once.
//
// cuDNN's deterministic backward stores the scores' gradient, heads x T x S in bf16. It is
// therefore called for one piece of the batch after another: some rows with all heads, or, where
// even one row is too much, some groups of heads of one row. No bits depend on the cut.
//
// What one piece of r rows and h heads needs, with T and S up to a multiple of 128 and D to one of
// 64:
//   scores      r h T S 2      dS in bf16 (only the deterministic algorithm)
//   dq          r h T D 4      sums in fp32 (the other one)
//   dk, dv    2 r h S D 4      of every query head, before heads of a group are added
//   sums      2 r h T 4        rowsum(dout * out), and space for one more
//   slack       16 MiB
// Not all are needed at once: it is an upper bound, checked against cuDNN's own number at run time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace weft::cuda {

struct AttentionPieces {
  int64_t rows, groups;  // in one piece; the last may have fewer
  size_t bytes;          // workspace of one piece, an upper bound; 0: too long for cuDNN
};

// A piece's scores stay below kPieceBytes where several rows or groups could go together. A single
// group may have kLargestPiece; beyond it the built-in kernel is used, whose memory grows only with
// T.
inline constexpr int64_t kPieceBytes = int64_t{1} << 30;
inline constexpr int64_t kLargestPiece = int64_t{4} << 30;
inline constexpr int64_t kPieceSlack = int64_t{16} << 20;

inline AttentionPieces attention_pieces(int64_t B, int64_t T, int64_t S, int64_t H, int64_t G,
                                        int64_t D) {
  const auto divide_up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  // Pieces of at most `most` out of n, as even as possible.
  const auto even = [&](int64_t n, int64_t most) {
    return divide_up(n, divide_up(n, std::clamp<int64_t>(most, 1, n)));
  };
  const int64_t padded_t = divide_up(T, 128) * 128, padded_s = divide_up(S, 128) * 128;
  const int64_t padded_d = divide_up(D, 64) * 64;
  const int64_t group = H / G * padded_t * padded_s * 2;
  if (group > kLargestPiece) return {0, 0, 0};
  const int64_t groups = even(G, kPieceBytes / group);
  const int64_t rows = groups == G ? even(B, kPieceBytes / (G * group)) : 1;
  const int64_t of_head =
      padded_t * padded_s * 2 + (padded_t + 2 * padded_s) * padded_d * 4 + 2 * padded_t * 4;
  const int64_t bytes = rows * groups * (H / G) * of_head + kPieceSlack;
  return {rows, groups, static_cast<size_t>(bytes)};
}

// What a plan reserves: the maximum over pieces of these lengths and any shorter ones, since plans
// of shorter rows share the memory of the longest. Pieces hold more rows where rows are shorter.
// is_self: keys are as many as queries in the shorter plans, too.
inline size_t attention_pieces_most_bytes(int64_t B, int64_t T, int64_t S, int64_t H, int64_t G,
                                          int64_t D, bool is_self) {
  size_t most = 0;
  for (int64_t t = 128; t < T + 128; t += 128) {
    for (int64_t s = is_self ? t : 128; s < (is_self ? t + 1 : S + 128); s += 128) {
      most = std::max(most, attention_pieces(B, std::min(t, T), std::min(s, S), H, G, D).bytes);
    }
  }
  return most;
}

}  // namespace weft::cuda
