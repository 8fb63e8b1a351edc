// tests/kernel/cached_attention_test.cpp: attention over a cache, and how the cache is filled.
#include <algorithm>

#include "kernel/attention_bias.h"
#include "kernel/packed_qkv.h"
#include "tests/kernel/attention_case.h"
#include "tests/kernel/fewer_types.h"

namespace weft {
namespace {

constexpr int64_t kMaxPositions = 140;

// Self-attention of rows of q, k and v.
struct CachedForm {
  int64_t T, H, G, D;
  Dtype dtype = Dtype::kF32;
  bool is_interleaved = false;
  int64_t window = 0;
  AttentionBias bias = {};
  float scale = 0.3f;

  int64_t width() const { return (H + 2 * G) * D; }
  std::string text() const {
    return fmt::format("cached attention T {} H {} G {} D {} {}{} window {} bias {}", T, H, G, D,
                       dtype_name(dtype), is_interleaved ? " interleaved" : "", window,
                       static_cast<int>(bias.kind));
  }
};

CachedForm cached_alibi(CachedForm f, int64_t first_head, int64_t num_heads) {
  f.bias = {AttentionBias::Kind::kAlibi, first_head, num_heads};
  return f;
}
CachedForm cached_table(CachedForm f, int buckets, int64_t max_distance) {
  f.bias.kind = AttentionBias::Kind::kRelative;
  f.bias.buckets = relative_buckets(buckets, max_distance, false);
  return f;
}

// T: a token, a few, more than a block of queries.
std::vector<CachedForm> cached_forms() {
  std::vector<CachedForm> list;
  for (const Dtype dtype : kAllTypes) {
    for (const int64_t T : {1, 3, 70}) {
      list.push_back({T, 4, 2, 16, dtype});
      list.push_back({T, 3, 3, 16, dtype, true});
      list.push_back({T, 2, 1, 16, dtype, false, 20});
      list.push_back(cached_alibi({T, 3, 3, 16, dtype, true}, 4, 12));
      list.push_back(cached_table({T, 2, 2, 16, dtype}, 32, 60));
      if (dtype == Dtype::kF32) list.push_back(cached_alibi({T, 2, 2, 16, dtype, false, 33}, 0, 2));
    }
    list.push_back({2, 4, 2, 10, dtype});
    list.push_back({2, 4, 2, 80, dtype});
    list.push_back({3, 4, 2, 128, dtype, false, 1});
    list.push_back({1, 4, 2, 256, dtype});
    list.push_back(cached_table({1, 2, 1, 7, dtype, false, 50}, 16, 40));
  }
  return with_fewer_types_under_asan(list);
}

// Where q, k and v of a row of `form` begin, in (B, positions, width) of which `first` is the first
// position.
struct Parts {
  HeadsIn q, k, v;
};
Parts parts_of(const CachedForm& f, const Buffer& qkv, int64_t positions, int64_t first) {
  const int64_t D = f.D, step = f.is_interleaved ? 3 * D : D;
  const auto at = [&](int64_t column) {
    return HeadsIn{qkv.at(first * f.width() + column), positions * f.width(), f.width(), step};
  };
  if (f.is_interleaved) return {at(0), at(D), at(2 * D)};
  return {at(0), at(f.H * D), at((f.H + f.G) * D)};
}

struct Cache {
  Buffer k, v;
};

// Positions first .. first + T - 1 of rows (B, positions); row b has lengths[b] of these.
Buffer step(const CachedForm& f, const Buffer& qkv, const Buffer& table, int64_t positions,
            int64_t first, const TestVector<int32_t>& starts, const TestVector<int32_t>& lengths,
            Cache* cache, const Kernels& kernels, Bench& bench) {
  const auto B = static_cast<int64_t>(lengths.size());
  const Parts parts = parts_of(f, qkv, positions, first);
  Buffer out(f.dtype, B * f.T * f.H * f.D);
  FillCacheArgs fill;
  fill.B = B;
  fill.T = f.T;
  fill.G = f.G;
  fill.D = f.D;
  fill.max_positions = kMaxPositions;
  fill.dtype = f.dtype;
  fill.k = parts.k;
  fill.v = parts.v;
  fill.starts = starts.data();
  fill.lengths = lengths.data();
  fill.k_cache = cache->k.data();
  fill.v_cache = cache->v.data();
  kernels.fill_cache(bench.context(0), fill);
  CachedAttentionArgs args;
  args.B = B;
  args.T = f.T;
  args.H = f.H;
  args.G = f.G;
  args.D = f.D;
  args.max_positions = kMaxPositions;
  args.dtype = f.dtype;
  args.scale = f.scale;
  args.window = f.window;
  args.q = parts.q;
  args.starts = starts.data();
  args.lengths = lengths.data();
  args.k_cache = cache->k.data();
  args.v_cache = cache->v.data();
  args.bias = f.bias;
  args.bias.table = table.data();
  args.out = out.data();
  const size_t bytes = kernels.cached_attention_workspace(args, bench.num_threads());
  kernels.cached_attention(bench.context(bytes), args);
  return out;
}

Buffer table_of(const CachedForm& f) {
  return Buffer::random(f.dtype, f.bias.buckets.count * f.H, 4);
}

// New positions after others that are in the cache; a row without new ones, one with half of them.
class CachedAttentionForms : public ::testing::TestWithParam<CachedForm> {};

TEST_P(CachedAttentionForms, EveryLevelAgreesWithRef) {
  const CachedForm& f = GetParam();
  const TestVector<int32_t> starts = {65, 0, 12},
                            lengths = {static_cast<int32_t>(f.T), static_cast<int32_t>(f.T / 2), 0};
  const Buffer qkv = Buffer::random(f.dtype, 3 * f.T * f.width(), 1), table = table_of(f);
  const Buffer old = Buffer::random(f.dtype, 3 * kMaxPositions * f.G * f.D, 2);
  compare_levels(
      f.text(), f.dtype,
      [&](const Kernels& kernels, Bench& bench) {
        Cache cache = {old, old};
        Buffer out = step(f, qkv, table, f.T, 0, starts, lengths, &cache, kernels, bench);
        return Outputs{cache.k, cache.v, out};
      },
      [&](size_t output) {
        return output < 2 ? Tolerance{0, 0} : biased_attention_tolerance(f.dtype);
      });
}

INSTANTIATE_TEST_SUITE_P(All, CachedAttentionForms, ::testing::ValuesIn(cached_forms()),
                         text_name<CachedForm>);

// Row b of attention over whole rows.
Buffer whole_rows(const CachedForm& f, const Buffer& qkv, const Buffer& table, int64_t positions,
                  const TestVector<int32_t>& lengths, const Kernels& kernels, Bench& bench) {
  const auto B = static_cast<int64_t>(lengths.size());
  Buffer out(f.dtype, B * positions * f.H * f.D);
  const Parts parts = parts_of(f, qkv, positions, 0);
  AttentionArgs args;
  args.B = B;
  args.T = args.S = positions;
  args.H = f.H;
  args.G = f.G;
  args.D = f.D;
  args.dtype = f.dtype;
  args.scale = f.scale;
  args.window = f.window;
  args.q = parts.q;
  args.k = parts.k;
  args.v = parts.v;
  args.lengths = args.source_lengths = lengths.data();
  args.bias = f.bias;
  args.bias.table = table.data();
  args.out = contiguous_heads(out.data(), positions, f.H, f.D);
  kernels.attention(bench.context(kernels.attention_workspace(args, bench.num_threads())), args);
  return out;
}

// A prompt, then a few positions at a time, then single ones: every row of attention over the
// whole.
TEST(CachedAttention, PieceByPieceEqualsTheWhole) {
  const int64_t positions = 90;
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    for (CachedForm f : {CachedForm{1, 4, 2, 16, dtype}, CachedForm{1, 2, 2, 16, dtype, true, 30},
                         cached_alibi({1, 3, 3, 16, dtype, true}, 1, 6),
                         cached_table({1, 2, 1, 16, dtype}, 32, 60),
                         cached_table({1, 2, 2, 16, dtype, false, 25}, 16, 20)}) {
      const TestVector<int32_t> lengths = {90, 86};
      const Buffer qkv = Buffer::random(dtype, 2 * positions * f.width(), 1), table = table_of(f);
      for (const Kernels* kernels : tested_kernels_and_ref(dtype)) {
        Bench bench(2);
        const Buffer want = whole_rows(f, qkv, table, positions, lengths, *kernels, bench);
        Cache cache = {Buffer(dtype, 2 * kMaxPositions * f.G * f.D),
                       Buffer(dtype, 2 * kMaxPositions * f.G * f.D)};
        Buffer got(dtype, want.size());
        int64_t first = 0;
        for (const int64_t T : {70, 3, 14, 1, 1, 1}) {
          f.T = T;
          const auto start = static_cast<int32_t>(first);
          TestVector<int32_t> left;
          for (const int32_t length : lengths)
            left.push_back(std::clamp<int32_t>(length - start, 0, static_cast<int32_t>(T)));
          const Buffer out =
              step(f, qkv, table, positions, first, {start, start}, left, &cache, *kernels, bench);
          const int64_t columns = f.H * f.D;
          for (int64_t i = 0; i < out.size(); ++i) {
            const int64_t b = i / columns / T, t = i / columns % T;
            got.set((b * positions + first + t) * columns + i % columns, out[i]);
          }
          first += T;
        }
        ASSERT_EQ(first, positions);
        expect_close(got, want, biased_attention_tolerance(dtype),
                     fmt::format("{} of {}", f.text(), kernels->name));
      }
    }
  }
}

// Queries of another sequence: k and v of its rows are in the caches, side by side in one product.
TEST(CachedAttention, ASourceInTheCacheEqualsTheSource) {
  for (const Dtype dtype : kAllTypes) {
    for (const int64_t T : {1, 3, 70}) {
      const int64_t B = 3, S = 75, H = 4, G = 2, D = 16;
      const TestVector<int32_t> lengths = {static_cast<int32_t>(T), 1, static_cast<int32_t>(T)},
                                source_lengths = {75, 66, 0};
      const Buffer q = Buffer::random(dtype, B * T * H * D, 1),
                   kv = Buffer::random(dtype, B * S * 2 * G * D, 2);
      const HeadsIn k = {kv.data(), S * 2 * G * D, 2 * G * D, D},
                    v = {kv.at(G * D), S * 2 * G * D, 2 * G * D, D};
      const auto cached = [&](const Kernels& kernels, Bench& bench) {
        Cache cache = {Buffer(dtype, B * kMaxPositions * G * D),
                       Buffer(dtype, B * kMaxPositions * G * D)};
        Buffer out(dtype, B * T * H * D);
        kernels.fill_cache(bench.context(0), {.B = B,
                                              .T = S,
                                              .G = G,
                                              .D = D,
                                              .max_positions = kMaxPositions,
                                              .dtype = dtype,
                                              .k = k,
                                              .v = v,
                                              .lengths = source_lengths.data(),
                                              .k_cache = cache.k.data(),
                                              .v_cache = cache.v.data()});
        const CachedAttentionArgs args = {.B = B,
                                          .T = T,
                                          .H = H,
                                          .G = G,
                                          .D = D,
                                          .max_positions = kMaxPositions,
                                          .dtype = dtype,
                                          .scale = 1.0f,
                                          .q = contiguous_heads(q.data(), T, H, D),
                                          .lengths = lengths.data(),
                                          .source_lengths = source_lengths.data(),
                                          .k_cache = cache.k.data(),
                                          .v_cache = cache.v.data(),
                                          .out = out.data()};
        const size_t bytes = kernels.cached_attention_workspace(args, bench.num_threads());
        kernels.cached_attention(bench.context(bytes), args);
        return Outputs{out};
      };
      compare_levels(fmt::format("cached source T {} {}", T, dtype_name(dtype)), dtype, cached,
                     attention_tolerance(dtype));
      Bench bench(1);
      Buffer want(dtype, B * T * H * D);
      AttentionArgs args;
      args.B = B;
      args.T = T;
      args.S = S;
      args.H = H;
      args.G = G;
      args.D = D;
      args.dtype = dtype;
      args.scale = 1.0f;
      args.causal = false;
      args.q = contiguous_heads(q.data(), T, H, D);
      args.k = k;
      args.v = v;
      args.lengths = lengths.data();
      args.source_lengths = source_lengths.data();
      args.out = contiguous_heads(want.data(), T, H, D);
      ref_kernels().attention(bench.context(0), args);
      expect_close(cached(ref_kernels(), bench)[0], want, attention_tolerance(dtype), "source");
    }
  }
}

// Rows that are idle in a step keep what their caches hold.
TEST(CachedAttention, IdleRowsKeepTheirCache) {
  const CachedForm f = {5, 2, 2, 16};
  const Buffer qkv = Buffer::random(f.dtype, 2 * f.T * f.width(), 1), table = table_of(f);
  const Buffer old = Buffer::random(f.dtype, 2 * kMaxPositions * f.G * f.D, 2);
  for (const Kernels* kernels : tested_kernels_and_ref(f.dtype)) {
    Bench bench(1);
    Cache cache = {old, old};
    step(f, qkv, table, f.T, 0, {0, 7}, {0, 5}, &cache, *kernels, bench);
    const int64_t row = kMaxPositions * f.G * f.D;
    for (int64_t i = 0; i < 2 * row; ++i) {
      const int64_t position = i % row / (f.G * f.D);
      const bool is_new = i >= row && position >= 7 && position < 12;
      ASSERT_EQ(cache.k[i] != old[i], is_new) << kernels->name << " at " << i;
      ASSERT_EQ(cache.v[i] != old[i], is_new) << kernels->name << " at " << i;
    }
  }
}

}  // namespace
}  // namespace weft
