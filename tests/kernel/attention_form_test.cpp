// tests/kernel/attention_form_test.cpp: attention beyond causal rows of packed qkv: separate
// sources, windows, biases, strides.
#include "tests/kernel/attention_form.h"

#include "tests/kernel/fewer_types.h"

namespace weft {
namespace {

using Form = AttentionForm;

const TestVector<int64_t>& form_rows() {
  static const TestVector<int64_t> list = {1, 17, 2, (int64_t{3} << 32) + 5};
  return list;
}
Form dropped_form(Form f, double rate) {
  f.dropout = {.rate = rate, .seed = 42, .site = 3, .first_head = 1, .rows = form_rows().data()};
  return f;
}

std::vector<Form> attention_forms() {
  std::vector<Form> list;
  for (const Dtype dtype : kAllTypes) {
    const bool causal = true;
    // A separate source: shorter, longer, of two positions; padding on either side.
    list.push_back({2, 5, 9, 2, 1, 4, dtype, false, 0, {5, 3}, {9, 2}});
    list.push_back({2, 70, 200, 4, 2, 16, dtype, false, 0, {}, {200, 65}});
    list.push_back({1, 200, 2, 2, 2, 10, dtype});
    list.push_back({2, 130, 40, 2, 1, 16, dtype, causal, 0, {130, 100}, {40, 0}});
    list.push_back({1, 60, 140, 2, 1, 16, dtype, causal});
    list.push_back({2, 150, 150, 2, 1, 16, dtype, false, 0, {150, 70}, {150, 70}});
    // Windows: of two keys, within a block, of a block, across blocks; with padding that attends.
    list.push_back({1, 150, 150, 2, 1, 16, dtype, causal, 2});
    list.push_back({2, 200, 200, 1, 1, 16, dtype, causal, 40, {200, 130}, {200, 130}});
    list.push_back({1, 270, 270, 1, 1, 18, dtype, causal, 64});
    if (dtype == Dtype::kF32) {
      list.push_back({2, 260, 260, 1, 1, 16, dtype, causal, 100, {}, {150, 100}});
      list.push_back({1, 150, 260, 1, 1, 16, dtype, false, 33});
    }
    // Biases: a number of heads that is not a power of two, a part of the model's heads; tables of
    // both kinds.
    list.push_back(
        with_alibi({2, 130, 130, 3, 3, 16, dtype, causal, 0, {130, 80}, {130, 80}}, 4, 12));
    list.push_back(with_alibi({1, 70, 90, 2, 1, 10, dtype}, 0, 2));
    list.push_back(
        with_table({2, 140, 140, 3, 3, 16, dtype, false, 0, {140, 90}, {140, 90}}, 32, 128));
    list.push_back(
        with_table({2, 150, 150, 2, 1, 16, dtype, causal, 0, {150, 149}, {150, 149}}, 32, 60));
    list.push_back(with_table({2, 40, 100, 2, 2, 6, dtype, false, 0, {}, {100, 30}}, 8, 20));
    list.push_back(with_table({1, 130, 130, 2, 2, 16, dtype, causal, 50}, 16, 40));
    // Segments on both sides, of which one row has no key, and one more source than queries.
    list.push_back(with_segments({2, 200, 300, 2, 1, 16, dtype}, {{64, 65, 1, 70}, {30, 100, 20}},
                                 {{100, 1, 130, 66}, {40, 200}}));
    list.push_back(with_segments({2, 200, 200, 2, 1, 16, dtype, causal, 30}, {{90, 110}, {7, 150}},
                                 {{90, 110}, {7, 150, 20}}));
    if (dtype == Dtype::kF16) continue;  // its code is that of bf16
    list.push_back(with_table(
        with_segments({2, 150, 170, 2, 2, 16, dtype}, {{70, 80}, {20, 90}}, {{90, 70}, {100, 60}}),
        32, 128));
    list.push_back({1, 70, 90, 2, 1, 80, dtype});
    // Several tiles of the larger heads, with biases.
    list.push_back(with_alibi({1, 100, 100, 2, 2, 96, dtype, causal}, 0, 2));
    list.push_back(dropped_form(with_table({1, 140, 70, 1, 1, 128, dtype}, 32, 128), 0.1));
    list.push_back({1, 40, 50, 1, 1, 128, dtype, false, 9});
    list.push_back(with_table({1, 40, 50, 2, 2, 64, dtype}, 32, 128));
    list.push_back(with_table({1, 40, 50, 2, 2, 64, dtype}, 128, 300));  // as many as a GPU may
    list.push_back(with_table({1, 40, 50, 1, 1, 256, dtype}, 32, 128));
    list.push_back(dropped_form({2, 90, 140, 2, 1, 16, dtype, false, 0, {}, {140, 77}}, 0.2));
    list.push_back(dropped_form(with_table({2, 90, 90, 2, 2, 16, dtype, causal, 25}, 16, 30), 0.3));
    list.push_back(dropped_form(
        with_segments({2, 100, 120, 2, 1, 16, dtype}, {{40, 60}, {9, 70}}, {{70, 50}, {33, 34}}),
        0.3));
    // Causal by the place in the segments, which begin elsewhere in the source.
    list.push_back(dropped_form(with_segments({2, 100, 120, 2, 1, 16, dtype, causal},
                                              {{40, 60}, {70, 30}}, {{70, 50}, {20, 90}}),
                                0.3));
    // Odd head dims; a table and a window over a source of another length.
    list.push_back({2, 70, 40, 2, 1, 7, dtype, false, 0, {}, {40, 33}});
    list.push_back({1, 140, 140, 1, 1, 65, dtype, causal});
    list.push_back(with_table({1, 90, 150, 2, 2, 16, dtype, causal, 40}, 16, 30));
    list.push_back(with_table({2, 150, 70, 2, 1, 9, dtype, causal, 20, {}, {70, 50}}, 16, 30));
  }
  return with_fewer_types_under_asan(list);
}

class AttentionForms : public ::testing::TestWithParam<Form> {};

TEST_P(AttentionForms, EveryLevelAgreesWithRef) {
  const Form& f = GetParam();
  const FormInputs in(f);
  const Buffer dout = dout_of(f);
  compare_levels(
      "attention " + f.text(), f.dtype,
      [&](const Kernels& kernels, Bench& bench) { return attend(f, in, kernels, bench); },
      [&](size_t output) {
        return output == 0 ? biased_attention_tolerance(f.dtype) : kFloatTolerance;
      });
  Bench bench(1);
  const Outputs result = attend(f, in, ref_kernels(), bench);
  compare_levels(
      "attention gradient " + f.text(), f.dtype,
      [&](const Kernels& kernels, Bench& b) { return gradients(f, in, result, dout, kernels, b); },
      biased_attention_tolerance(f.dtype));
}

INSTANTIATE_TEST_SUITE_P(All, AttentionForms, ::testing::ValuesIn(attention_forms()),
                         text_name<Form>);

TEST(AttentionForm, GradientOfRefIsTheDifference) {
  const bool causal = true;
  const Dtype f32 = Dtype::kF32;
  for (const Form& f :
       {Form{2, 4, 6, 2, 1, 4, f32, false, 0, {4, 3}, {6, 2}},
        Form{1, 7, 5, 2, 2, 4, f32, causal, 3}, Form{1, 7, 7, 2, 1, 2, f32, causal, 2},
        Form{1, 4, 6, 2, 1, 4, f32, false, 2}, with_alibi({1, 6, 6, 3, 3, 4, f32, causal}, 2, 6),
        with_table({2, 6, 6, 2, 1, 4, f32, causal, 0, {6, 4}, {6, 4}}, 4, 5),
        with_table({2, 4, 7, 2, 2, 4, f32, false, 0, {}, {7, 3}}, 8, 5),
        with_segments({2, 5, 6, 2, 1, 4, f32}, {{2, 3}, {1, 2, 2}}, {{4, 2}, {2, 1}}),
        with_table(with_segments({1, 6, 7, 2, 2, 4, f32}, {{2, 4}}, {{4, 3}}), 8, 5),
        dropped_form(with_table({2, 4, 6, 2, 1, 4, f32}, 8, 5), 0.3)}) {
    FormInputs in(f);
    const Buffer dout = dout_of(f);
    Bench bench(1);
    const auto loss = [&] {
      const Outputs result = attend(f, in, ref_kernels(), bench);
      double sum = 0.0;
      for (int64_t i = 0; i < dout.size(); ++i) sum += dout[i] * result[0][i];
      return sum;
    };
    const Outputs d =
        gradients(f, in, attend(f, in, ref_kernels(), bench), dout, ref_kernels(), bench);
    expect_differences(in.q, loss, d[0], "dq " + f.text());
    expect_differences(in.k, loss, d[1], "dk " + f.text());
    expect_differences(in.v, loss, d[2], "dv " + f.text());
    expect_differences(in.table, loss, d[3], "dtable " + f.text());
  }
}

// The layout of q, k, v and their gradients does not change bits: BLOOM's heads of (q, k, v), heads
// before positions, an odd pitch.
TEST(AttentionForm, StridesDoNotChangeBits) {
  for (const Dtype dtype : kAllTypes) {
    const Form f = {2, 70, 70, 2, 2, 16, dtype, true, 0, {70, 40}, {70, 40}};
    const FormInputs in(f);
    const Buffer dout = dout_of(f);
    struct Layout {
      int64_t row, position, head, next;  // next: from q to k, from k to v
    };
    const Layout bloom = {f.T * f.H * 3 * f.D, f.H * 3 * f.D, 3 * f.D, f.D};
    const Layout heads_first = {f.H * f.T * f.D, f.D, f.T * f.D, f.B * f.H * f.T * f.D};
    const Layout odd = {3 * f.T * 57 + 1, 57, 27, f.T * 57};
    for (const Layout& strides : {bloom, heads_first, odd}) {
      const int64_t row = strides.row, position = strides.position, head = strides.head,
                    next = strides.next;
      const auto heads = [&](auto* buffer, int64_t which) {
        using Data = std::remove_pointer_t<decltype(buffer->data())>;
        return StridedHeads<Data>{buffer->at(which * next), row, position, head};
      };
      const int64_t size = 2 * row + 3 * next;
      const auto each = [&](const auto& fn) {
        for (int64_t i = 0; i < f.num_queries(); ++i) {
          const int64_t d = i % f.D, h = i / f.D % f.H, t = i / f.D / f.H % f.T;
          fn(i, i / f.D / f.H / f.T * row + t * position + h * head + d);
        }
      };
      Buffer all(dtype, size);
      each([&](int64_t i, int64_t at) {
        all.set(at, in.q[i]);
        all.set(next + at, in.k[i]);
        all.set(2 * next + at, in.v[i]);
      });
      for (const Kernels* kernels : tested_kernels_and_ref(dtype)) {
        if (std::string(kernels->name) == "cuda" && dtype != Dtype::kF32) continue;
        Bench bench(2);
        const Outputs want = attend(f, in, *kernels, bench);
        const Outputs dwant = gradients(f, in, want, dout, *kernels, bench);
        Buffer out(dtype, size), lse(Dtype::kF32, f.B * f.H * f.T), douts(dtype, size),
            d(dtype, size);
        each([&](int64_t i, int64_t at) { douts.set(at, dout[i]); });
        AttentionArgs args;
        set_operands(f, in, &args);
        const Buffer& packed = all;
        args.q = heads(&packed, 0), args.k = heads(&packed, 1), args.v = heads(&packed, 2);
        args.out = heads(&out, 0);
        args.lse = lse.floats();
        kernels->attention(bench.context(kernels->attention_workspace(args, 2)), args);
        AttentionBackwardArgs back;
        static_cast<AttentionOperands&>(back) = args;
        const Buffer &cout = out, &cdouts = douts;
        back.out = heads(&cout, 0), back.dout = heads(&cdouts, 0), back.lse = lse.floats();
        back.dq = heads(&d, 0), back.dk = heads(&d, 1), back.dv = heads(&d, 2);
        kernels->attention_backward(bench.context(kernels->attention_backward_workspace(back, 2)),
                                    back);
        EXPECT_TRUE(lse.same_bits(want[1])) << kernels->name;
        int64_t wrong = 0;
        each([&](int64_t i, int64_t at) {
          wrong += out[at] != want[0][i] || d[at] != dwant[0][i] || d[next + at] != dwant[1][i] ||
                   d[2 * next + at] != dwant[2][i];
        });
        EXPECT_EQ(wrong, 0) << kernels->name << " " << dtype_name(dtype) << " head stride " << head;
        EXPECT_TRUE(out.guard_intact() && d.guard_intact());
      }
    }
  }
}

// Part [begin, begin + count) of the positions of row b.
Buffer part(const Buffer& of, int64_t positions, int64_t b, int64_t begin, int64_t count,
            int64_t columns) {
  Buffer out(of.dtype(), count * columns);
  for (int64_t i = 0; i < out.size(); ++i) out.set(i, of[(b * positions + begin) * columns + i]);
  return out;
}

// A segment with its source segment equals a separate row, and rows are independent. The table's
// gradient is the rows' sum in order.
TEST(AttentionForm, SegmentsAndRowsAreIndependent) {
  const std::vector<std::vector<int>> queries = {{70, 1, 59}, {129}}, source = {{40, 90, 10}, {65}};
  for (const Dtype dtype : kAllTypes) {
    const Form whole =
        with_table(with_segments({2, 130, 140, 2, 2, 16, dtype}, queries, source), 32, 128);
    const FormInputs in(whole);
    const Buffer dout = dout_of(whole);
    const int64_t width = whole.H * whole.D;
    for (const Kernels* kernels : tested_kernels_and_ref(dtype)) {
      Bench bench(2);
      const Outputs all = attend(whole, in, *kernels, bench);
      const Outputs dall = gradients(whole, in, all, dout, *kernels, bench);
      Buffer dtable = Buffer::filled(Dtype::kF32, whole.bias.buckets.count * whole.H, 0.0);
      for (size_t b = 0; b < 2; ++b) {
        const auto row = static_cast<int64_t>(b);
        int64_t q = 0, k = 0;
        for (size_t s = 0; s < queries[b].size(); ++s) {
          const int64_t T = queries[b][s], S = source[b][s];
          const Form alone = with_table({1, T, S, 2, 2, 16, dtype}, 32, 128);
          FormInputs one(alone);
          one.q = part(in.q, whole.T, row, q, T, width);
          one.k = part(in.k, whole.S, row, k, S, width);
          one.v = part(in.v, whole.S, row, k, S, width);
          one.table = in.table;
          const Outputs got = attend(alone, one, *kernels, bench);
          const Outputs dgot =
              gradients(alone, one, got, part(dout, whole.T, row, q, T, width), *kernels, bench);
          EXPECT_TRUE(got[0].same_bits(part(all[0], whole.T, row, q, T, width))) << kernels->name;
          EXPECT_TRUE(dgot[0].same_bits(part(dall[0], whole.T, row, q, T, width))) << kernels->name;
          EXPECT_TRUE(dgot[1].same_bits(part(dall[1], whole.S, row, k, S, width))) << kernels->name;
          EXPECT_TRUE(dgot[2].same_bits(part(dall[2], whole.S, row, k, S, width))) << kernels->name;
          q += T;
          k += S;
        }
        Form as_row = with_table(
            with_segments({1, 130, 140, 2, 2, 16, dtype}, {queries[b]}, {source[b]}), 32, 128);
        FormInputs one(as_row);
        one.q = part(in.q, whole.T, row, 0, whole.T, width);
        one.k = part(in.k, whole.S, row, 0, whole.S, width);
        one.v = part(in.v, whole.S, row, 0, whole.S, width);
        one.table = in.table;
        dtable =
            gradients(as_row, one, attend(as_row, one, *kernels, bench),
                      part(dout, whole.T, row, 0, whole.T, width), *kernels, bench, &dtable)[3];
      }
      if (kernels == &ref_kernels()) continue;  // its sums are float64 until the end
      EXPECT_TRUE(dtable.same_bits(dall[3])) << kernels->name << " " << dtype_name(dtype);
    }
  }
}

// A window that covers everything has the bits of no window; a smaller one does not.
TEST(AttentionForm, AWideWindowHasNoEffect) {
  for (const Dtype dtype : kAllTypes) {
    Form f = {1, 150, 150, 2, 1, 16, dtype, true};
    const FormInputs in(f);
    const Buffer dout = dout_of(f);
    for (const Kernels* kernels : tested_kernels_and_ref(dtype)) {
      if (std::string(kernels->name) == "cuda" && dtype != Dtype::kF32) continue;
      Bench bench(1);
      f.window = 0;
      const Outputs want = attend(f, in, *kernels, bench);
      const Outputs dwant = gradients(f, in, want, dout, *kernels, bench);
      for (const int64_t wide : {int64_t{150}, int64_t{INT32_MAX}, (int64_t{1} << 32) + 5}) {
        f.window = wide;
        EXPECT_TRUE(attend(f, in, *kernels, bench)[0].same_bits(want[0]))
            << kernels->name << " " << wide;
        const Outputs d = gradients(f, in, want, dout, *kernels, bench);
        for (size_t i = 0; i < 3; ++i) {
          EXPECT_TRUE(d[i].same_bits(dwant[i])) << kernels->name << " " << wide;
        }
      }
      f.window = 100;
      EXPECT_FALSE(attend(f, in, *kernels, bench)[0].same_bits(want[0])) << kernels->name;
    }
  }
}

// The table's gradient in bf16 is that in fp32, rounded once, added to what was there; a frozen
// table has none, and the other gradients keep their bits.
TEST(AttentionForm, TheTablesGradientIsRoundedOnceOrLeftOut) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kBf16}) {
    const Form f = with_table({2, 90, 70, 2, 2, 16, dtype, false, 0, {}, {70, 50}}, 16, 30);
    const FormInputs in(f);
    const Buffer dout = dout_of(f);
    for (const Kernels* kernels : tested_kernels_and_ref(dtype)) {
      Bench bench(2);
      const Outputs result = attend(f, in, *kernels, bench);
      const Outputs want = gradients(f, in, result, dout, *kernels, bench);
      const Buffer old = Buffer::random(Dtype::kBf16, f.bias.buckets.count * f.H, 6);
      const Outputs got = gradients(f, in, result, dout, *kernels, bench, &old);
      for (int64_t i = 0; i < old.size(); ++i) {
        EXPECT_NEAR(got[3][i], old[i] + want[3][i], 0x1p-8 * std::abs(got[3][i]) + 1e-6)
            << kernels->name << " " << dtype_name(dtype) << " at " << i;
      }
      const Outputs frozen =
          gradients(f, in, result, dout, *kernels, bench, nullptr, /*is_frozen=*/true);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(got[i].same_bits(want[i]) && frozen[i].same_bits(want[i])) << kernels->name;
      }
    }
  }
}

// Without keys, by the source's length or by the window, a query yields zero and gets no gradient.
TEST(AttentionForm, WithoutKeysOutputAndGradientAreZero) {
  const Form f = {2, 140, 140, 2, 1, 16, Dtype::kF32, true, 20, {}, {0, 60}};
  const FormInputs in(f);
  const Buffer dout = dout_of(f);
  for (const Kernels* kernels : tested_kernels_and_ref(f.dtype)) {
    Bench bench(1);
    const Outputs result = attend(f, in, *kernels, bench);
    const Outputs d = gradients(f, in, result, dout, *kernels, bench);
    for (int64_t i = 0; i < f.num_queries(); ++i) {
      const int64_t t = i / f.D / f.H % f.T;
      const bool is_empty = i < f.num_queries() / 2 || t >= 60 + 20 - 1;
      ASSERT_EQ(result[0][i] == 0.0, is_empty) << kernels->name << " at " << i;
      ASSERT_TRUE(!is_empty || d[0][i] == 0.0) << kernels->name << " at " << i;
      ASSERT_EQ(result[1][(i / f.D / f.H / f.T * f.H + i / f.D % f.H) * f.T + t] == 0.0, is_empty);
    }
    for (int64_t i = 0; i < f.num_keys(); ++i) {
      const bool is_key = i >= f.num_keys() / 2 && i / f.D / f.G % f.S < 60;
      ASSERT_TRUE(is_key || d[1][i] == 0.0) << kernels->name << " at " << i;
      ASSERT_EQ(d[2][i] != 0.0, is_key) << kernels->name << " at " << i;
    }
  }
}

}  // namespace
}  // namespace weft
