// tests/kernel/qk_norm_test.cpp: the norm of q's and k's heads against ref, differences and
// rmsnorm.
#include <fmt/core.h>

#include "tests/kernel/common.h"

namespace weft {
namespace {

struct QkCase {
  int64_t R, H, G, D;
  Dtype dtype, grad_dtype;
  int weight_offset, leaves;
  bool accumulate = false, dq = true, dk = true;
  int64_t columns() const { return (H + 2 * G) * D; }
  std::string text() const {
    return fmt::format("R {} H {} G {} D {} {} grad {} offset {} leaves {} accumulate {} {} {}", R,
                       H, G, D, dtype_name(dtype), dtype_name(grad_dtype), weight_offset, leaves,
                       accumulate, dq, dk);
  }
};

std::vector<QkCase> qk_cases() {
  std::vector<QkCase> list;
  for (const Dtype dtype : kAllTypes) {
    const Dtype grad_dtype = gradient_types(dtype).back();
    list.push_back({1, 1, 1, 1, dtype, Dtype::kF32, 0, 1});
    list.push_back({9, 3, 1, 10, dtype, grad_dtype, 1, 1, true});
    list.push_back({130, 4, 2, 16, dtype, Dtype::kF32, 0, 2, true});
    list.push_back({70, 8, 4, 24, dtype, grad_dtype, 1, 4});
    list.push_back({67, 2, 2, 128, dtype, Dtype::kF32, 0, 1, false, true, false});
    list.push_back({5, 4, 2, 256, dtype, Dtype::kF32, 1, 2, false, false, true});
    list.push_back({300, 6, 2, 33, dtype, grad_dtype, 0, 2, false, false, false});
  }
  return list;
}

struct Weights {
  Buffer q, k;
};
Weights random_weights(const QkCase& c) {
  return {Buffer::random(c.dtype, c.D, 3), Buffer::random(c.dtype, c.D, 4)};
}

// y, rstd; in place gives the same.
Outputs norm(const QkCase& c, const Buffer& x, const Weights& w, const Kernels& kernels,
             Bench& bench) {
  Buffer y(c.dtype, x.size()), rstd(Dtype::kF32, c.R * (c.H + c.G)), in_place = x;
  QkNormArgs args = {.R = c.R,
                     .H = c.H,
                     .G = c.G,
                     .D = c.D,
                     .dtype = c.dtype,
                     .eps = 1e-5f,
                     .weight_offset = c.weight_offset,
                     .x = x.data(),
                     .q_weight = w.q.data(),
                     .k_weight = w.k.data(),
                     .y = y.data(),
                     .rstd = rstd.floats()};
  kernels.qk_norm(bench.context(0), args);
  args.x = args.y = in_place.data();
  kernels.qk_norm(bench.context(0), args);
  EXPECT_TRUE(in_place.same_bits(y)) << c.text() << " " << kernels.name;
  return {y, rstd};
}

// dx, and the weights' gradients of every leaf; in place of dy and of x gives the same.
Outputs norm_backward(const QkCase& c, const Buffer& dy, const Buffer& x, const Weights& w,
                      const Buffer& rstd, const Kernels& kernels, Bench& bench) {
  Buffer in_dy = dy, in_x = x;
  Outputs made = {Buffer(c.dtype, x.size())};
  for (int i = 0; i < 2 * c.leaves; ++i) made.push_back(Buffer::random(c.grad_dtype, c.D, 9));
  const Outputs before = made;
  QkNormBackwardArgs args = {.R = c.R,
                             .H = c.H,
                             .G = c.G,
                             .D = c.D,
                             .dtype = c.dtype,
                             .grad_dtype = c.grad_dtype,
                             .weight_offset = c.weight_offset,
                             .leaves = c.leaves,
                             .dy = dy.data(),
                             .x = x.data(),
                             .q_weight = w.q.data(),
                             .k_weight = w.k.data(),
                             .rstd = rstd.floats(),
                             .dx = made[0].data(),
                             .dq_weight = {},
                             .dk_weight = {},
                             .accumulate = c.accumulate};
  const auto run = [&](Outputs* gradients) {
    for (int i = 0; i < c.leaves; ++i) {
      const size_t q = static_cast<size_t>(1 + i), k = static_cast<size_t>(1 + c.leaves + i);
      if (c.dq) args.dq_weight[i] = (*gradients)[q].data();
      if (c.dk) args.dk_weight[i] = (*gradients)[k].data();
    }
    const size_t bytes = kernels.qk_norm_backward_workspace(args, bench.num_threads());
    kernels.qk_norm_backward(bench.context(bytes), args);
  };
  run(&made);
  for (Buffer* in_place : {&in_dy, &in_x}) {
    Outputs again = before;
    args.dy = in_place == &in_dy ? in_dy.data() : dy.data();
    args.x = in_place == &in_x ? in_x.data() : x.data();
    args.dx = in_place->data();
    run(&again);
    again[0] = *in_place;
    for (size_t i = 0; i < made.size(); ++i)
      EXPECT_TRUE(again[i].same_bits(made[i])) << c.text() << " " << kernels.name << " " << i;
  }
  return made;
}

TEST(QkNorm, EveryLevelAgreesWithRef) {
  for (const QkCase& c : qk_cases()) {
    const Buffer x = Buffer::random(c.dtype, c.R * c.columns(), 1);
    const Weights w = random_weights(c);
    compare_levels(
        "qk_norm " + c.text(), c.dtype,
        [&](const Kernels& k, Bench& b) { return norm(c, x, w, k, b); },
        [&](size_t output) { return tolerance_of(output == 1 ? Dtype::kF32 : c.dtype); });
  }
}

TEST(QkNorm, EveryLevelsGradientAgreesWithRef) {
  for (const QkCase& c : qk_cases()) {
    const Buffer dy = Buffer::random(c.dtype, c.R * c.columns(), 1);
    const Buffer x = Buffer::random(c.dtype, c.R * c.columns(), 2);
    const Weights w = random_weights(c);
    Buffer rstd(Dtype::kF32, c.R * (c.H + c.G));
    for (int64_t i = 0; i < rstd.size(); ++i) rstd.set(i, 0.5 + 0.002 * static_cast<double>(i));
    compare_levels(
        "qk_norm gradient " + c.text(), c.dtype,
        [&](const Kernels& k, Bench& b) { return norm_backward(c, dy, x, w, rstd, k, b); },
        [&](size_t output) { return tolerance_of(output == 0 ? c.dtype : c.grad_dtype); });
  }
}

TEST(QkNorm, GradientOfRefIsTheDifference) {
  for (const int weight_offset : {0, 1}) {
    const QkCase c = {2, 2, 1, 6, Dtype::kF32, Dtype::kF32, weight_offset, 1};
    Buffer x = Buffer::random(c.dtype, c.R * c.columns(), 1);
    const Buffer dy = Buffer::random(c.dtype, c.R * c.columns(), 2);
    Weights w = random_weights(c);
    Bench bench(1);
    const auto loss = [&] {
      const Outputs result = norm(c, x, w, ref_kernels(), bench);
      double sum = 0.0;
      for (int64_t i = 0; i < dy.size(); ++i) sum += dy[i] * result[0][i];
      return sum;
    };
    const Buffer rstd = norm(c, x, w, ref_kernels(), bench)[1];
    const Outputs gradient = norm_backward(c, dy, x, w, rstd, ref_kernels(), bench);
    expect_differences(x, loss, gradient[0], "dx");
    expect_differences(w.q, loss, gradient[1], "dq_weight");
    expect_differences(w.k, loss, gradient[2], "dk_weight");
  }
}

// A head is a row of rmsnorm, to the bit; v is unchanged.
TEST(QkNorm, AHeadIsARowOfRmsNorm) {
  Bench bench(1);
  for (const Dtype dtype : kAllTypes) {
    for (const int weight_offset : {0, 1}) {
      const QkCase c = {5, 4, 2, 40, dtype, Dtype::kF32, weight_offset, 1};
      const Buffer x = Buffer::random(dtype, c.R * c.columns(), 1);
      const Weights w = random_weights(c);
      for (const Kernels* k : tested_kernels(dtype)) {
        const Outputs got = norm(c, x, w, *k, bench);
        for (int64_t row = 0; row < c.R * (c.H + 2 * c.G); ++row) {
          const int64_t r = row / (c.H + 2 * c.G), head = row % (c.H + 2 * c.G);
          Buffer s(dtype, c.D), y(dtype, c.D), rstd(Dtype::kF32, 1);
          for (int64_t d = 0; d < c.D; ++d) s.set(d, x[row * c.D + d]);
          if (head < c.H + c.G) {
            k->rmsnorm(bench.context(0), {.R = 1,
                                          .C = c.D,
                                          .dtype = dtype,
                                          .eps = 1e-5f,
                                          .x = s.data(),
                                          .residual = nullptr,
                                          .weight = head < c.H ? w.q.data() : w.k.data(),
                                          .sum = nullptr,
                                          .y = y.data(),
                                          .rstd = rstd.floats(),
                                          .reuse_rstd = false,
                                          .weight_offset = weight_offset});
            EXPECT_EQ(got[1][r * (c.H + c.G) + head], rstd[0]) << k->name;
          } else {
            y = s;
          }
          for (int64_t d = 0; d < c.D; ++d) EXPECT_EQ(got[0][row * c.D + d], y[d]) << k->name;
        }
      }
    }
  }
}

// Exact mode: a leaf's sums have the same bits, whichever others a rank has.
TEST(QkNorm, ALeafsBitsDoNotDependOnOtherLeaves) {
  Bench bench(2);
  const QkCase all = {150, 8, 4, 24, Dtype::kF32, Dtype::kF32, 0, 4};
  const QkCase one = {150, 2, 1, 24, Dtype::kF32, Dtype::kF32, 0, 1};
  const Buffer dy = Buffer::random(all.dtype, all.R * all.columns(), 1);
  const Buffer x = Buffer::random(all.dtype, all.R * all.columns(), 2);
  const Weights w = random_weights(all);
  const auto part = [&](const Buffer& from, int leaf) {  // its columns of q, k and v
    Buffer to(all.dtype, one.R * one.columns());
    const int64_t heads[] = {2 * leaf, 2 * leaf + 1, 8 + leaf, 12 + leaf};
    for (int64_t i = 0; i < to.size(); ++i) {
      const int64_t r = i / one.columns(), head = i % one.columns() / all.D, d = i % all.D;
      to.set(i, from[r * all.columns() + heads[head] * all.D + d]);
    }
    return to;
  };
  for (const Kernels* k : tested_kernels(all.dtype)) {
    const Buffer rstd = norm(all, x, w, *k, bench)[1];
    const Outputs got = norm_backward(all, dy, x, w, rstd, *k, bench);
    for (int leaf = 0; leaf < all.leaves; ++leaf) {
      const Buffer mine = part(x, leaf);
      const Outputs alone =
          norm_backward(one, part(dy, leaf), mine, w, norm(one, mine, w, *k, bench)[1], *k, bench);
      EXPECT_TRUE(got[static_cast<size_t>(1 + leaf)].same_bits(alone[1])) << k->name << leaf;
      EXPECT_TRUE(got[static_cast<size_t>(5 + leaf)].same_bits(alone[2])) << k->name << leaf;
    }
  }
}

}  // namespace
}  // namespace weft
