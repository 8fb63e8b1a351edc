// tests/kernel/dropout_test.cpp: dropout of activations: its bits, its rule and its gradient.
#include "kernel/dropout.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "tests/kernel/common.h"
#include "tests/kernel/dropout_rows.h"

namespace weft {
namespace {

struct DropoutCase {
  int64_t B, T, C;
  double rate = 0.1;
  int64_t first_column = 0;
  Dtype dtype = Dtype::kF32;
  int64_t first_row = 0;  // of dropout_rows()

  int64_t size() const { return B * T * C; }
  std::string text() const {
    return fmt::format("B {} T {} C {} from {} {} rate {}", B, T, C, first_column,
                       dtype_name(dtype), rate);
  }
};

Buffer dropped(const DropoutCase& c, const Buffer& x, const Kernels& kernels, Bench& bench,
               bool in_place = false) {
  Buffer y = in_place ? x : Buffer(c.dtype, c.size());
  kernels.dropout(bench.context(0), {.B = c.B,
                                     .T = c.T,
                                     .C = c.C,
                                     .dtype = c.dtype,
                                     .rate = c.rate,
                                     .seed = 42,
                                     .site = 3,
                                     .first_column = c.first_column,
                                     .rows = dropout_rows().data() + 2 * c.first_row,
                                     .x = in_place ? y.data() : x.data(),
                                     .y = y.data()});
  return y;
}

// Columns that begin and end at every place of a group of four and of a vector.
std::vector<DropoutCase> dropout_cases() {
  std::vector<DropoutCase> list;
  for (const Dtype dtype : kAllTypes) {
    list.push_back({1, 1, 1, 0.5, 0, dtype});
    for (int64_t first = 0; first < 8; ++first) list.push_back({2, 3, 64, 0.5, first, dtype});
    for (int64_t C = 2; C < 10; ++C) list.push_back({3, 2, C, 0.3, 5, dtype});
    list.push_back({4, 5, 31, 0.1, 0, dtype});
    list.push_back({2, 3, 33, 0.1, 64, dtype});
    list.push_back({2, 300, 72, 0.2, 8, dtype});
    list.push_back({3, 7, 896, 0.9, 0, dtype});
    list.push_back({1, 40, 1031, 0.1, 1031, dtype});
    list.push_back({1, 2, 4096, 0.1, 3 * 4096, dtype});
  }
  return list;
}

TEST(Dropout, EveryLevelHasRefsBits) {
  Bench one(1), two(2), three(3);
  for (const DropoutCase& c : dropout_cases()) {
    const Buffer x = Buffer::random(c.dtype, c.size(), 1);
    const Buffer want = dropped(c, x, ref_kernels(), one);
    EXPECT_TRUE(want.guard_intact());
    for (const Kernels* k : tested_kernels(c.dtype)) {
      const std::string what = c.text() + " " + k->name;
      EXPECT_TRUE(dropped(c, x, *k, one).same_bits(want)) << what;
      EXPECT_TRUE(dropped(c, x, *k, two, true).same_bits(want)) << what << " in place";
      EXPECT_TRUE(dropped(c, x, *k, three).same_bits(want)) << what << " three threads";
    }
  }
}

// What an implementation of Philox 4x32 in Python, written from the rule in kernel/dropout.h, keeps
// of columns 100 to 131 in row 2^33 + 2^32 + 5 of epoch 1, at positions 0 and 1000.
TEST(Dropout, FollowsTheRule) {
  Bench bench(1);
  for (const auto& [rate, first, last] :
       {std::tuple{0.5, 0x882159c4u, 0x1b5d100cu}, {0.1, 0xbbf97dffu, 0xfffdfd7fu}}) {
    const DropoutCase c = {1, 1001, 32, rate, 100, Dtype::kF32, 1};
    const Buffer x = Buffer::filled(c.dtype, c.size(), 1.0);
    for (const Kernels* k : tested_kernels_and_ref(c.dtype)) {
      const Buffer y = dropped(c, x, *k, bench);
      for (int64_t i = 0; i < 32; ++i) {
        EXPECT_EQ(y[i] != 0, (first >> i & 1) != 0) << k->name << " " << i;
        EXPECT_EQ(y[1000 * 32 + i] != 0, (last >> i & 1) != 0) << k->name << " " << i;
      }
    }
  }
}

TEST(Dropout, KeepsTheFractionAndScalesIt) {
  Bench bench(1);
  for (const double rate : {0.1, 0.5, 0.9}) {
    const DropoutCase c = {4, 64, 96, rate};
    const Buffer x = Buffer::random(c.dtype, c.size(), 1);
    const Buffer y = dropped(c, x, ref_kernels(), bench);
    const auto scale = static_cast<float>(1 / (1 - rate));
    std::array<double, 4> kept = {};  // by word of the block
    for (int64_t i = 0; i < c.size(); ++i) {
      if (y[i] == 0) continue;
      ++kept[static_cast<size_t>(i % 4)];
      EXPECT_EQ(y[i], static_cast<float>(x[i]) * scale);
    }
    const double n = static_cast<double>(c.size()) / 4;
    for (const double k : kept) {
      EXPECT_NEAR(k / n, 1 - rate, 4 * std::sqrt(rate * (1 - rate) / n));  // four deviations
    }
  }
}

// Neighbours of every kind, and each part of the key, draw independently: two masks agree as often
// as independent ones do.
TEST(Dropout, EveryPartOfTheKeyMatters) {
  const DropoutKey base = element_dropout_key(42, 3, 1, 17);
  const std::array<DropoutKey, 6> others = {
      element_dropout_key(43, 3, 1, 17),
      element_dropout_key(42, 4, 1, 17),
      element_dropout_key(42, 3, 2, 17),
      element_dropout_key(42, 3, 1, 18),
      element_dropout_key(42, 3, 1, 17 + (int64_t{1} << 32)),
      dropout_key(42, 3, 0, 1, 17)};  // the last: of attention's first head
  constexpr int64_t kN = 256;
  constexpr double kRate = 0.25, kAgree = kRate * kRate + (1 - kRate) * (1 - kRate);
  const auto keeps = [](const DropoutKey& key, int64_t t, int64_t c) {
    return element_dropout_words(key, t, c / 4).word[c % 4] >= dropout_threshold(kRate);
  };
  const auto agreement = [&](const DropoutKey& key, int64_t t0, int64_t c0) {
    double same = 0;
    for (int64_t t = 0; t < kN; ++t) {
      for (int64_t c = 0; c < kN; ++c) same += keeps(base, t, c) == keeps(key, t + t0, c + c0);
    }
    return same / (kN * kN);
  };
  const double deviation = std::sqrt(kAgree * (1 - kAgree)) / kN;
  for (const DropoutKey& key : others) EXPECT_NEAR(agreement(key, 0, 0), kAgree, 4 * deviation);
  for (const auto& [t, c] : {std::pair{0, 1}, {1, 0}, {0, 2}, {0, 3}, {0, 4}, {4, 0}, {1, 4}}) {
    EXPECT_NEAR(agreement(base, t, c), kAgree, 4 * deviation) << t << " " << c;
  }
  EXPECT_EQ(agreement(base, 0, 0), 1.0);  // control
}

// Columns and rows of the whole.
Buffer part_of(const DropoutCase& whole, const DropoutCase& part, const Buffer& x) {
  Buffer out(whole.dtype, part.size());
  for (int64_t i = 0; i < part.size(); ++i) {
    const int64_t token = i / part.C + (part.first_row - whole.first_row) * whole.T;
    out.set(i, x[token * whole.C + part.first_column - whole.first_column + i % part.C]);
  }
  return out;
}

TEST(Dropout, CutsHaveTheSameBits) {
  Bench bench(2);
  for (const Dtype dtype : kAllTypes) {
    const DropoutCase whole = {3, 5, 96, 0.3, 0, dtype};
    const Buffer x = Buffer::random(dtype, whole.size(), 1);
    std::vector<DropoutCase> parts = {{1, 5, 96, 0.3, 0, dtype, 1}, {2, 5, 96, 0.3, 0, dtype, 1}};
    for (const int64_t first : {0, 24, 48, 72}) parts.push_back({3, 5, 24, 0.3, first, dtype});
    for (const int64_t first : {0, 19, 38, 57}) parts.push_back({3, 5, 19, 0.3, first, dtype});
    parts.push_back({2, 5, 7, 0.3, 41, dtype, 1});  // both
    for (const Kernels* k : tested_kernels_and_ref(dtype)) {
      const Buffer all = dropped(whole, x, *k, bench);
      for (const DropoutCase& part : parts) {
        const Buffer given = part_of(whole, part, x), want = part_of(whole, part, all);
        EXPECT_TRUE(dropped(part, given, *k, bench).same_bits(want)) << part.text() << k->name;
        // Negative controls: other columns, another row.
        DropoutCase wrong = part;
        ++wrong.first_column;
        EXPECT_FALSE(dropped(wrong, given, *k, bench).same_bits(want)) << part.text() << k->name;
        wrong = part;
        wrong.first_row = part.first_row == 0 ? 1 : 0;
        EXPECT_FALSE(dropped(wrong, given, *k, bench).same_bits(want)) << part.text() << k->name;
      }
    }
  }
}

// The gradient is the operation itself: the mask is that of the forward pass.
TEST(Dropout, GradientOfRefIsTheDifference) {
  const DropoutCase c = {2, 3, 7, 0.4, 2};
  Buffer x = Buffer::random(c.dtype, c.size(), 1);
  const Buffer dy = Buffer::random(c.dtype, c.size(), 2);
  Bench bench(1);
  const auto loss = [&] {
    const Buffer y = dropped(c, x, ref_kernels(), bench);
    double sum = 0.0;
    for (int64_t i = 0; i < dy.size(); ++i) sum += dy[i] * y[i];
    return sum;
  };
  expect_differences(x, loss, dropped(c, dy, ref_kernels(), bench), "dx");
}

// A dropped element is x * 0: an infinity does not vanish in it.
TEST(Dropout, NonFiniteValuesStayNonFinite) {
  Bench bench(1);
  const DropoutCase c = {1, 3, 41, 0.5};
  const Buffer x = Buffer::filled(c.dtype, c.size(), INFINITY);
  for (const Kernels* k : tested_kernels_and_ref(c.dtype)) {
    const Buffer y = dropped(c, x, *k, bench);
    int64_t nans = 0;
    for (int64_t i = 0; i < c.size(); ++i) {
      EXPECT_FALSE(std::isfinite(y[i])) << k->name;
      nans += std::isnan(y[i]);
    }
    EXPECT_GT(nans, 0) << k->name;
  }
}

}  // namespace
}  // namespace weft
