// tests/kernel/attention_cudnn_test.cpp: the steps around cuDNN's attention, without cuDNN.
//
// On a GPU cuDNN does not know of padding (kernel/cuda/attention_cudnn.cpp). Here ref plays its
// part, with all rows full, and must match ref with lengths.
#include <cmath>

#include "kernel/cuda/attention.h"
#include "kernel/cuda/attention_pieces.h"
#include "kernel/gpu/cudnn_rule.h"
#include "kernel/packed_qkv.h"
#include "tests/kernel/common.h"
#include "tests/kernel/emulated_cuda/table.h"

namespace weft {
namespace {

TEST(AttentionCudnn, PaddingNeedsNoMask) {
  const int64_t B = 3, T = 21, H = 4, G = 2, D = 8, width = (H + 2 * G) * D;
  const TestVector<int32_t> lengths = {21, 9, 0}, full(3, 21);
  for (const Dtype dtype : kAllTypes) {
    const Buffer qkv = Buffer::random(dtype, B * T * width, 1);
    const Buffer dout = Buffer::random(dtype, B * T * H * D, 2);
    Buffer out(dtype, B * T * H * D), lse(Dtype::kF32, B * H * T), want_out = out, want_lse = lse;
    Bench bench(1);
    const auto set_operands = [&](AttentionOperands* a) {
      a->B = B;
      a->T = T;
      a->H = H;
      a->G = G;
      a->D = D;
      a->dtype = dtype;
      a->scale = 0.3f;
      set_packed_qkv(a, qkv.data());
      a->lengths = a->source_lengths = lengths.data();
    };
    AttentionArgs args;
    set_operands(&args);
    args.out = contiguous_heads(want_out.data(), T, H, D);
    args.lse = want_lse.floats();
    ref_kernels().attention(bench.context(0), args);
    args.out.data = out.data(), args.lse = lse.floats();
    args.lengths = args.source_lengths = full.data();
    ref_kernels().attention(bench.context(0), args);
    EXPECT_FALSE(out.same_bits(want_out));
    args.lengths = args.source_lengths = lengths.data();
    emulated_zero_padding(bench.context(0), args);
    EXPECT_TRUE(out.same_bits(want_out));
    EXPECT_TRUE(lse.same_bits(want_lse));

    Buffer raised(Dtype::kF32, B * H * T), dqkv(dtype, B * T * width), want_dqkv = dqkv;
    emulated_raise_padding_lse(bench.context(0), args, raised.floats());
    EXPECT_TRUE(raised.guard_intact());
    AttentionBackwardArgs back;
    set_operands(&back);
    back.out = contiguous_heads<const void>(out.data(), T, H, D);
    back.dout = contiguous_heads(dout.data(), T, H, D);
    back.lse = lse.floats();
    set_packed_gradient(&back, want_dqkv.data());
    ref_kernels().attention_backward(bench.context(0), back);
    set_packed_gradient(&back, dqkv.data());
    back.lengths = back.source_lengths = full.data();
    ref_kernels().attention_backward(bench.context(0), back);
    EXPECT_FALSE(dqkv.same_bits(want_dqkv)) << "padding must not be without effect";
    back.lse = raised.floats();
    ref_kernels().attention_backward(bench.context(0), back);
    for (int64_t i = 0; i < dqkv.size(); ++i) ASSERT_EQ(dqkv[i], want_dqkv[i]) << "at " << i;
  }
}

// Under a causal mask, the segment mask leaves a query only its own segment.
TEST(AttentionCudnn, SegmentMaskKeepsOwnSegment) {
  const std::vector<std::vector<int>> rows = {{64, 65, 1, 70}, {3, 127, 30}, {200}};
  const int64_t B = 3, T = 200, pitch = cuda::segment_mask_pitch(T);
  TestVector<int32_t> positions, segments;
  for (const std::vector<int>& row : rows) {
    const size_t end = positions.size() + T;
    for (size_t s = 0; s < row.size(); ++s) {
      for (int i = 0; i < row[s]; ++i) {
        positions.push_back(i);
        segments.push_back(static_cast<int32_t>(s));
      }
    }
    for (int i = 0; positions.size() < end; ++i) {  // padding
      positions.push_back(0);
      segments.push_back(1000 + i);
    }
  }
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF16}) {
    Buffer mask(dtype, B * T * pitch);
    Bench bench(1);
    AttentionArgs args{};
    args.B = B, args.T = T, args.dtype = dtype, args.positions = positions.data();
    emulated_segment_mask(bench.context(0), args, mask.data());
    EXPECT_TRUE(mask.guard_intact());
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t q = 0; q < T; ++q) {
        for (int64_t k = 0; k <= q; ++k) {
          const bool own = segments[b * T + q] == segments[b * T + k];
          const double m = mask[(b * T + q) * pitch + k];
          ASSERT_TRUE(own ? m == 0.0 : std::exp(m + 1000.0) == 0.0 && std::isfinite(m))
              << "row " << b << " query " << q << " key " << k << ": " << m;
        }
      }
    }
  }
}

// All rows of one plan use the same kernel: memory is laid out for the longest.
TEST(AttentionCudnn, TheLongestRowDecidesTheKernel) {
  AttentionArgs args{};
  args.B = 1, args.T = 1024, args.H = 28, args.G = 4, args.D = 128, args.dtype = Dtype::kBf16;
  const int32_t lengths[] = {1024};
  args.lengths = args.source_lengths = lengths;
  set_packed_qkv(&args, nullptr);
  EXPECT_TRUE(suits_cudnn(args));
  args.longest = args.longest_source = 16384;
  EXPECT_TRUE(suits_cudnn(args));
  args.longest = args.longest_source = 32768;
  EXPECT_FALSE(suits_cudnn(args));
  args.T = args.longest, args.longest = args.longest_source = 0;
  set_packed_qkv(&args, nullptr);
  EXPECT_FALSE(suits_cudnn(args));
}

using Change = std::function<void(AttentionArgs*)>;

// By its arguments alone; everything else uses the built-in kernel.
TEST(AttentionCudnn, TheFormDecidesTheKernel) {
  const int32_t all[] = {1024}, lengths[] = {900}, positions[] = {0};
  const auto changed = [&](const Change& change) {
    AttentionArgs args{};
    args.B = 1, args.T = 1024, args.H = 28, args.G = 4, args.D = 128, args.dtype = Dtype::kBf16;
    set_packed_qkv(&args, nullptr);
    args.lengths = args.source_lengths = all;
    change(&args);
    return args;
  };
  const Change suited[] = {
      [](AttentionArgs*) {},
      [](AttentionArgs* a) { a->causal = false; },
      [&](AttentionArgs* a) {
        a->causal = false, a->has_source = true, a->S = 512, a->source_lengths = lengths;
      },
      [](AttentionArgs* a) { a->window = 100; },
      [&](AttentionArgs* a) { a->positions = a->source_positions = positions; },
      [](AttentionArgs* a) { a->q.head = a->k.head = a->v.head = 3 * a->D; },
      [](AttentionArgs* a) { a->k.position = a->v.position = a->G * a->D; },
  };
  for (const Change& change : suited) EXPECT_TRUE(suits_cudnn(changed(change)));
  const Change not_suited[] = {
      // Causal with a source of its own, also where a plan has no pointers yet; a window that ends
      // nowhere, or in a segment.
      [](AttentionArgs* a) { a->has_source = true; },
      [&](AttentionArgs* a) { a->has_source = true, a->S = 512, a->source_lengths = lengths; },
      [](AttentionArgs* a) { a->causal = false, a->window = 100; },
      [&](AttentionArgs* a) { a->window = 100, a->positions = a->source_positions = positions; },
      [&](AttentionArgs* a) { a->causal = false, a->positions = a->source_positions = positions; },
      [](AttentionArgs* a) { a->bias.kind = AttentionBias::Kind::kAlibi; },
      [](AttentionArgs* a) { a->bias.kind = AttentionBias::Kind::kRelative; },
      [](AttentionArgs* a) { a->dropout.rate = 0.1; },
      // The kernels that write zeros behind cuDNN's rows read lengths.
      [](AttentionArgs* a) { a->lengths = a->source_lengths = nullptr; },
      [](AttentionArgs* a) { a->causal = false, a->lengths = nullptr; },
      // Rows of a head that do not begin at 16 bytes.
      [](AttentionArgs* a) { a->k.position += 4; },
      [](AttentionArgs* a) { a->D = 100; },
      [](AttentionArgs* a) { a->dtype = Dtype::kF32; },
  };
  for (const Change& change : not_suited) EXPECT_FALSE(suits_cudnn(changed(change)));
}

// In exact mode cuDNN has the plain causal form alone, in any layout.
TEST(AttentionCudnn, ExactModeHasOnlyWhatWasTested) {
  const int32_t lengths[] = {64};
  AttentionArgs args{};
  args.B = 1, args.T = args.S = 64, args.H = args.G = 2, args.D = 64, args.dtype = Dtype::kBf16;
  args.q = args.k = args.v = contiguous_heads<const void>(nullptr, 64, 2, 64);
  args.lengths = args.source_lengths = lengths;
  EXPECT_TRUE(suits_cudnn(args) && is_cudnn_form_of_exact_mode(args));
  args.window = 10;
  EXPECT_TRUE(suits_cudnn(args) && !is_cudnn_form_of_exact_mode(args));
  args.window = 64;  // holds all keys: no window
  EXPECT_EQ(effective_window(args), 0);
  EXPECT_TRUE(suits_cudnn(args) && is_cudnn_form_of_exact_mode(args));
  args.longest = args.longest_source = 128;  // but not those of the plan's longest row
  EXPECT_EQ(effective_window(args), 64);
  EXPECT_TRUE(suits_cudnn(args) && !is_cudnn_form_of_exact_mode(args));
  args.longest = args.longest_source = 0;
  args.window = 0, args.causal = false;
  EXPECT_TRUE(suits_cudnn(args) && !is_cudnn_form_of_exact_mode(args));
  args.causal = true, args.positions = args.source_positions = lengths;
  EXPECT_TRUE(suits_cudnn(args) && !is_cudnn_form_of_exact_mode(args));
}

// A row without keys counts as padding, in any layout of the output.
TEST(AttentionCudnn, RowsWithoutKeysAreCleared) {
  const int64_t B = 3, T = 20, H = 2, D = 8, position = 3 * H * D;
  const TestVector<int32_t> lengths = {20, 20, 7}, source_lengths = {4, 0, 1};
  for (const Dtype dtype : kAllTypes) {
    const Buffer old = Buffer::random(dtype, B * T * position, 1);
    Buffer out = old, lse = Buffer::random(Dtype::kF32, B * H * T, 2);
    const Buffer old_lse = lse;
    Bench bench(1);
    AttentionArgs args{};
    args.B = B, args.T = T, args.S = 4, args.H = H, args.G = 1, args.D = D, args.dtype = dtype;
    args.lengths = lengths.data(), args.source_lengths = source_lengths.data();
    args.out = {out.data(), T * position, position, 3 * D};
    args.lse = lse.floats();
    emulated_zero_padding(bench.context(0), args);
    for (int64_t i = 0; i < out.size(); ++i) {
      const int64_t b = i / position / T, t = i / position % T, column = i % position;
      const bool is_cleared =
          (b == 1 || t >= lengths[static_cast<size_t>(b)]) && column % (3 * D) < D;
      ASSERT_EQ(out[i], is_cleared ? 0.0 : old[i]) << "row " << b << " query " << t;
      const int64_t at = (b * H + column % H) * T + t;
      const bool is_empty = b == 1 || t >= lengths[static_cast<size_t>(b)];
      ASSERT_EQ(lse[at], is_empty ? 0.0 : old_lse[at]) << "row " << b << " query " << t;
    }
  }
}

TEST(AttentionCudnn, PiecesCoverTheBatchWithinTheirBounds) {
  struct Sizes {
    int64_t B, T, H, G, D, rows, groups;
  };
  for (const Sizes& s : {Sizes{8, 1024, 14, 2, 64, 8, 2},
                         {4, 2048, 28, 4, 128, 4, 4},
                         {64, 1024, 14, 2, 64, 32, 2},
                         {5, 2048, 28, 4, 128, 3, 4},
                         {2, 8192, 28, 4, 128, 1, 1},
                         {2, 4096, 28, 4, 128, 1, 4},
                         {1, 2, 1, 1, 8, 1, 1}}) {
    const cuda::AttentionPieces pieces = cuda::attention_pieces(s.B, s.T, s.T, s.H, s.G, s.D);
    EXPECT_EQ(pieces.rows, s.rows) << s.T;
    EXPECT_EQ(pieces.groups, s.groups) << s.T;
    const int64_t scores = pieces.rows * pieces.groups * (s.H / s.G) * s.T * s.T * 2;
    EXPECT_LE(scores, cuda::kPieceBytes);
    EXPECT_GT(static_cast<int64_t>(pieces.bytes), scores);
  }
  EXPECT_EQ(cuda::attention_pieces(1, 32768, 32768, 28, 4, 128).bytes, 0u);  // 15 GB of scores
}

// A plan's memory suffices for all shorter ones, whose pieces hold more rows.
TEST(AttentionCudnn, ThePlannedBytesCoverShorterRows) {
  const int64_t B = 40, T = 500, S = 1200, H = 8, G = 4, D = 64;
  const size_t self = cuda::attention_pieces_most_bytes(B, S, S, H, G, D, true);
  const size_t cross = cuda::attention_pieces_most_bytes(B, T, S, H, G, D, false);
  for (int64_t s = 1; s <= S; s += 61) {
    EXPECT_LE(cuda::attention_pieces(B, s, s, H, G, D).bytes, self) << s;
    for (int64_t t = 1; t <= T; t += 37) {
      EXPECT_LE(cuda::attention_pieces(B, t, s, H, G, D).bytes, cross) << t << " x " << s;
    }
  }
}

}  // namespace
}  // namespace weft
