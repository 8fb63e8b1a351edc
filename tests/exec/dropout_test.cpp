// tests/exec/dropout_test.cpp: dropout in a model: its gradient, and what its mask depends on.
#include "graph/ops/dropout.h"

#include <algorithm>

#include "graph/ops/add.h"
#include "graph/ops/linear.h"
#include "kernel/cpu/level.h"
#include "tests/exec/traced_model.h"

namespace weft {
namespace {

using testing::kChannels;
using testing::kRows;
using testing::traced;
using testing::TracedModel;

// Of a product, of the embedding, which is read again, and of a sum.
Graph model(uint64_t seed = 5) {
  return traced([=](Builder& g, Ref x) {
    const Ref rows = g.input("rows", {kRows, 2}, Dtype::kI64);
    const auto drop = [&](Ref of, double rate, int64_t site) {
      return ops::dropout(g, of, {.rate = rate, .seed = seed, .site = site, .rows = rows});
    };
    const Ref a = ops::linear(g, drop(x, 0.3, 0), {g.parameter("a", {kChannels, kChannels})}, {});
    return drop(ops::add(g, x, drop(a, 0.5, 1)), 0.1, 2);
  });
}

void set_rows(TracedModel* m, std::initializer_list<int64_t> rows) {
  std::copy(rows.begin(), rows.end(), m->executor().at<int64_t>("rows"));
}

TEST(DropoutGradient, IsTheDifference) {
  TracedModel m(model(), ref_kernels());
  set_rows(&m, {0, 4, 0, 5});
  m.expect_differences();
}

TEST(DropoutGradient, EveryLevelAgreesWithRef) {
  TracedModel ref(model(), ref_kernels());
  set_rows(&ref, {0, 4, 0, 5});
  const auto want = ref.gradients();
  for (const char* level : available_levels()) {
    TracedModel m(model(), *find_kernels(level));
    set_rows(&m, {0, 4, 0, 5});
    const auto got = m.gradients();
    for (const auto& [name, gradient] : want) {
      for (size_t i = 0; i < gradient.size(); ++i) {
        EXPECT_NEAR(got.at(name)[i], gradient[i], 1e-5) << level << " " << name << " " << i;
      }
    }
  }
}

TEST(DropoutInAModel, TheMaskDependsOnRowsEpochAndSeed) {
  TracedModel m(model(), ref_kernels());
  set_rows(&m, {0, 4, 0, 5});
  const double once = m.loss();
  EXPECT_EQ(m.loss(), once);
  set_rows(&m, {1, 4, 1, 5});
  EXPECT_NE(m.loss(), once) << "another epoch";
  set_rows(&m, {0, 5, 0, 4});
  EXPECT_NE(m.loss(), once) << "other rows";
  set_rows(&m, {0, 4, 0, 5});
  EXPECT_EQ(m.loss(), once);
  TracedModel other(model(6), ref_kernels());
  set_rows(&other, {0, 4, 0, 5});
  EXPECT_NE(other.loss(), once) << "another seed";
}

}  // namespace
}  // namespace weft
