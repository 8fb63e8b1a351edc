// tests/kernel/attention_dropout_test.cpp: dropout of attention's probabilities.
#include <algorithm>
#include <array>

#include "kernel/dropout.h"
#include "tests/kernel/attention_case.h"
#include "tests/kernel/dropout_rows.h"
#include "tests/kernel/fewer_types.h"

namespace weft {
namespace {

using Case = AttentionCase;

Case dropped_case(Case c, double rate, int64_t first_head = 0) {
  c.dropout = {
      .rate = rate, .seed = 42, .site = 3, .first_head = first_head, .rows = dropout_rows().data()};
  return c;
}

std::vector<Case> attention_dropout_cases() {
  std::vector<Case> list;
  for (const Dtype dtype : kAllTypes) {
    list.push_back(dropped_case({1, 1, 1, 1, 8, {1}, dtype}, 0.5));
    list.push_back(dropped_case({2, 64, 2, 2, 16, {64, 63}, dtype}, 0.1));
    list.push_back(dropped_case({3, 65, 4, 2, 10, {65, 0, 1}, dtype}, 0.1, 4));
    // Segments that begin at every place of a square of 16.
    list.push_back(
        dropped_case(packed({2, 200, 4, 2, 16, {}, dtype}, {{64, 65, 1, 70}, {3, 127, 30}}), 0.1));
    if (dtype == Dtype::kF16) continue;  // its code is that of bf16
    list.push_back(dropped_case({1, 130, 3, 1, 64, {130}, dtype}, 0.3));
    list.push_back(dropped_case({1, 200, 1, 1, 18, {197}, dtype}, 0.9, 11));
    list.push_back(dropped_case({1, 70, 2, 1, 80, {70}, dtype}, 0.2));
    list.push_back(dropped_case({1, 40, 1, 1, 128, {33}, dtype}, 0.1));
    list.push_back(dropped_case({1, 40, 1, 1, 256, {40}, dtype}, 0.1));
    list.push_back(
        dropped_case(packed({1, 200, 2, 2, 80, {}, dtype}, {{7, 11, 90, 13, 60}}), 0.4, 2));
    list.push_back(dropped_case({2, 150, 2, 1, 18, {63, 149}, dtype, {}, true}, 0.1));
    list.push_back(dropped_case({2, 140, 3, 1, 64, {130, 20}, dtype, {}, true}, 0.5));
  }
  return with_fewer_types_under_asan(list);
}

Buffer random_qkv(const Case& c) { return Buffer::random(c.dtype, c.B * c.T * c.width(), 1); }
Buffer random_dout(const Case& c) { return Buffer::random(c.dtype, c.B * c.T * c.H * c.D, 2); }

class AttentionDropouts : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionDropouts, EveryLevelAgreesWithRef) {
  const Case& c = GetParam();
  const Buffer qkv = random_qkv(c), dout = random_dout(c);
  check_forward(c, qkv);
  check_gradient(c, qkv, dout);
}

INSTANTIATE_TEST_SUITE_P(All, AttentionDropouts, ::testing::ValuesIn(attention_dropout_cases()),
                         text_name<Case>);

TEST(AttentionDropout, GradientOfRefIsTheDifference) {
  for (const Case& c : {dropped_case({2, 6, 2, 1, 4, {6, 4}}, 0.3),
                        dropped_case(packed({2, 6, 2, 1, 4, {}}, {{2, 4}, {1, 2, 2}}), 0.5, 1),
                        dropped_case({3, 6, 2, 1, 4, {2, 5, 0}, Dtype::kF32, {}, true}, 0.2)}) {
    Buffer qkv = random_qkv(c);
    const Buffer dout = random_dout(c);
    Bench bench(1);
    const auto loss = [&] {
      const Outputs result = forward(c, qkv, ref_kernels(), bench);
      double sum = 0.0;
      for (int64_t i = 0; i < dout.size(); ++i) sum += dout[i] * result[0][i];
      return sum;
    };
    const Outputs result = forward(c, qkv, ref_kernels(), bench);
    expect_differences(qkv, loss, backward(c, qkv, result, dout, ref_kernels(), bench), "dqkv");
  }
}

// The mask itself: with v the unit vectors, the output of query t is row t of P M. q is zero, so P
// is 1 / (t + 1), and nothing but the mask decides.
std::vector<bool> mask_of(const Case& given, const Kernels& kernels, double* scale) {
  Case c = given;
  c.T = c.D = 64;
  Buffer qkv = Buffer::filled(c.dtype, c.B * c.T * c.width(), 0.0);
  for (int64_t b = 0; b < c.B; ++b) {
    for (int64_t t = 0; t < c.T; ++t) {
      for (int64_t g = 0; g < c.G; ++g) {
        qkv.set(((b * c.T + t) * (c.H + 2 * c.G) + c.H + c.G + g) * c.D + t, 1.0);
      }
    }
  }
  Bench bench(1);
  const Outputs out = forward(c, qkv, kernels, bench);
  std::vector<bool> kept;
  for (int64_t i = 0; i < c.B * c.T * c.H; ++i) {
    const int64_t t = i / c.H % c.T;
    for (int64_t j = 0; j <= t; ++j) {
      const double value = out[0][i * c.D + j] * static_cast<double>(t + 1);
      kept.push_back(value != 0);
      if (value != 0) *scale = value;
    }
  }
  return kept;
}

TEST(AttentionDropout, KeepsTheFractionAndScalesIt) {
  for (const double rate : {0.1, 0.5, 0.9}) {
    const Case c = dropped_case({4, 64, 8, 2, 64, {64, 64, 64, 64}}, rate);
    double scale = 0;
    const std::vector<bool> want = mask_of(c, ref_kernels(), &scale);
    EXPECT_NEAR(scale, 1 / (1 - rate), 1e-5);
    const auto n = static_cast<double>(want.size());
    const auto kept = static_cast<double>(std::count(want.begin(), want.end(), true));
    EXPECT_NEAR(kept / n, 1 - rate, 4 * std::sqrt(rate * (1 - rate) / n));  // four deviations
    for (const Kernels* kernels : tested_kernels()) {
      EXPECT_EQ(mask_of(c, *kernels, &scale), want) << kernels->name << " " << rate;
    }
  }
}

// Neighbours of every kind, and each part of the key, draw independently: two masks agree as often
// as independent ones do.
TEST(AttentionDropout, EveryPartOfTheKeyMatters) {
  const DropoutKey base = dropout_key(42, 3, 5, 1, 17);
  const std::array<DropoutKey, 6> others = {
      dropout_key(43, 3, 5, 1, 17), dropout_key(42, 4, 5, 1, 17),
      dropout_key(42, 3, 6, 1, 17), dropout_key(42, 3, 5, 2, 17),
      dropout_key(42, 3, 5, 1, 18), dropout_key(42, 3, 5, 1, 17 + (int64_t{1} << 32))};
  constexpr int64_t kN = 256;
  constexpr double kRate = 0.25, kAgree = kRate * kRate + (1 - kRate) * (1 - kRate);
  const auto keeps = [](const DropoutKey& key, int64_t t, int64_t j) {
    return dropout_word(key, t, j) >= dropout_threshold(kRate);
  };
  const auto agreement = [&](const DropoutKey& key, int64_t t0, int64_t j0) {
    double same = 0;
    for (int64_t t = 0; t < kN; ++t) {
      for (int64_t j = 0; j < kN; ++j) same += keeps(base, t, j) == keeps(key, t + t0, j + j0);
    }
    return same / (kN * kN);
  };
  const double deviation = std::sqrt(kAgree * (1 - kAgree)) / kN;
  for (const DropoutKey& key : others) EXPECT_NEAR(agreement(key, 0, 0), kAgree, 4 * deviation);
  for (const auto& [t, j] : {std::pair{0, 1}, {1, 0}, {0, 8}, {8, 0}, {8, 8}, {16, 0}, {0, 16}}) {
    EXPECT_NEAR(agreement(base, t, j), kAgree, 4 * deviation) << t << " " << j;
  }
  EXPECT_EQ(agreement(base, 0, 0), 1.0);  // control
}

// Seven rounds: the known answers of Random123's kat_vectors.
TEST(AttentionDropout, DrawsArePhilox) {
  const auto words = [](const PhiloxBlock& b) { return std::vector<uint32_t>(b.word, b.word + 4); };
  EXPECT_EQ(words(philox_rounds<7>({{0, 0, 0, 0}}, 0, 0)),
            (std::vector<uint32_t>{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}));
  EXPECT_EQ(words(philox_rounds<10>({{0, 0, 0, 0}}, 0, 0)),
            (std::vector<uint32_t>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

// Half of the heads, or one row, have the bits that they have in the whole.
TEST(AttentionDropout, CutsHaveTheSameBits) {
  for (const Dtype dtype : kAllTypes) {
    const Case whole = dropped_case({2, 100, 4, 2, 16, {100, 90}, dtype}, 0.2);
    const Buffer qkv = random_qkv(whole), dout = random_dout(whole);
    // Heads 2 and 3 with their key/value head, or all of row 1.
    Case heads = dropped_case({2, 100, 2, 1, 16, {100, 90}, dtype}, 0.2, 2);
    Case row = dropped_case({1, 100, 4, 2, 16, {90}, dtype}, 0.2);
    row.dropout.rows = dropout_rows().data() + 2;
    const auto part = [&](const Buffer& of, const std::vector<int64_t>& columns, int64_t first) {
      const int64_t width = of.size() / (whole.B * whole.T) / whole.D;
      Buffer out(dtype,
                 (whole.B * whole.T - first) * static_cast<int64_t>(columns.size()) * whole.D);
      int64_t to = 0;
      for (int64_t r = first; r < whole.B * whole.T; ++r) {
        for (const int64_t head : columns) {
          for (int64_t d = 0; d < whole.D; ++d) out.set(to++, of[(r * width + head) * whole.D + d]);
        }
      }
      return out;
    };
    const std::vector<int64_t> in_heads = {2, 3, 5, 7}, out_heads = {2, 3};
    const std::vector<int64_t> all_in = {0, 1, 2, 3, 4, 5, 6, 7}, all_out = {0, 1, 2, 3};
    Bench bench(2);
    for (const Kernels* tested : tested_kernels_and_ref(dtype)) {
      const Kernels& kernels = *tested;
      const Outputs all = forward(whole, qkv, kernels, bench);
      const Buffer dall = backward(whole, qkv, all, dout, kernels, bench);
      const auto expect_part = [&](const Case& c, const std::vector<int64_t>& in,
                                   const std::vector<int64_t>& out, int64_t first) {
        const Buffer x = part(qkv, in, first);
        const Outputs got = forward(c, x, kernels, bench);
        EXPECT_TRUE(got[0].same_bits(part(all[0], out, first))) << kernels.name;
        const Buffer dgot = backward(c, x, got, part(dout, out, first), kernels, bench);
        EXPECT_TRUE(dgot.same_bits(part(dall, in, first))) << kernels.name;
      };
      expect_part(heads, in_heads, out_heads, 0);
      expect_part(row, all_in, all_out, whole.T);
      // Negative controls: another first head, another row.
      Case wrong = heads;
      wrong.dropout.first_head = 0;
      EXPECT_FALSE(forward(wrong, part(qkv, in_heads, 0), kernels, bench)[0].same_bits(
          part(all[0], out_heads, 0)));
    }
  }
}

}  // namespace
}  // namespace weft
