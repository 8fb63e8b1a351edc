// tests/exec/in_out_test.cpp: weights stored as (in, out) yield the same as those stored as (out,
// in).
#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/ops/linear.h"
#include "kernel/cpu/level.h"
#include "tests/exec/traced_model.h"

namespace weft {
namespace {

using testing::kChannels;
using testing::TracedModel;

constexpr int64_t kInner = 12;  // not square

// Two stacked weights with biases, side by side, then one back to the channels.
Ref two_products(Builder& g, Ref x, WeightOrder order) {
  const auto weight = [&](const char* name, int64_t out, int64_t in) {
    return g.parameter(name, order == WeightOrder::kInOut ? Shape{in, out} : Shape{out, in});
  };
  const Ref a = weight("a", 5, kChannels), b = weight("b", kInner - 5, kChannels);
  const Ref y =
      ops::linear(g, x, {a, b}, {g.parameter("a.bias", {5}), g.parameter("b.bias", {7})}, order);
  return ops::linear(g, y, {weight("down", kChannels, kInner)},
                     {g.parameter("down.bias", {kChannels})}, order);
}

bool is_weight(const std::string& name) { return name == "a" || name == "b" || name == "down"; }

Shape shape_of(const TracedModel& m, const std::string& name) {
  return m.graph()[*m.graph().find(name)].shape;
}

// (rows, columns) -> (columns, rows)
template <typename T>
std::vector<T> transposed(const T* from, const Shape& shape) {
  std::vector<T> to;
  for (int64_t c = 0; c < shape[1]; ++c) {
    for (int64_t r = 0; r < shape[0]; ++r) to.push_back(from[r * shape[1] + c]);
  }
  return to;
}

class InOut : public ::testing::TestWithParam<std::string> {
 protected:
  const Kernels& kernels() const { return *find_kernels(GetParam().c_str()); }
  template <typename T>
  void copy_weights(TracedModel& from, TracedModel* to) {
    for (const Ref r : from.graph().of_kind(ValueKind::kParameter)) {
      const Value& v = from.graph()[r];
      const T* data = from.executor().template at<T>(v.name);
      const std::vector<T> values = is_weight(v.name)
                                        ? transposed(data, v.shape)
                                        : std::vector<T>(data, data + num_elements(v.shape));
      std::copy(values.begin(), values.end(), to->executor().template at<T>(v.name));
    }
  }
};

TEST_P(InOut, LossAndGradientsEqualThoseOfTheTransposedWeights) {
  for (const Dtype compute : {Dtype::kF32, Dtype::kBf16}) {
    const auto traced = [&](WeightOrder order) {
      return testing::traced([&](Builder& g, Ref x) { return two_products(g, x, order); }, compute);
    };
    TracedModel plain(traced(WeightOrder::kOutIn), kernels());
    TracedModel in_out(traced(WeightOrder::kInOut), kernels());
    if (compute == Dtype::kF32) copy_weights<float>(plain, &in_out);
    if (compute == Dtype::kBf16) copy_weights<uint16_t>(plain, &in_out);
    const double tolerance = compute == Dtype::kF32 ? 1e-5 : 3e-2;
    // The contraction of every element is the same chain.
    EXPECT_EQ(in_out.loss(), plain.loss());
    auto wanted = plain.gradients();
    const auto got = in_out.gradients();
    ASSERT_EQ(got.size(), 8u);
    for (auto& [name, values] : wanted) {
      if (is_weight(name)) values = transposed(values.data(), shape_of(plain, name));
      ASSERT_EQ(got.at(name).size(), values.size()) << name;
      double most = 0;
      for (float v : values) most = std::max(most, std::abs(double{v}));
      EXPECT_GT(most, 0) << name;
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(got.at(name)[i], values[i], tolerance * most) << name << " " << i;
      // Of gradients of weights that no sum of two products is behind, the bits.
      if (name == "down") {
        EXPECT_EQ(got.at(name), values);
      }
    }
  }
}

std::vector<std::string> in_out_levels() {
  std::vector<std::string> names = {"ref"};
  for (const char* level : available_levels()) names.emplace_back(level);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Kernels, InOut, ::testing::ValuesIn(in_out_levels()),
                         [](const auto& p) { return p.param; });

TEST(InOutShapes, WrongOnesAreNamed) {
  Graph graph;
  Builder g(&graph, Dtype::kF32);
  const Ref x = g.activation("x", {2, 3, 8}, Dtype::kF32);
  const Ref w = g.parameter("w", {5, 8});
  EXPECT_NO_THROW(ops::linear(g, x, {w}, {}));
  EXPECT_THROW(ops::linear(g, x, {w}, {}, WeightOrder::kInOut), BugError);
}

}  // namespace
}  // namespace weft
