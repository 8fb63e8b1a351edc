// tests/kernel/sgd_test.cpp: SGD on every back end, its list on a GPU, and torch's values.
#include "tests/kernel/update_case.h"

namespace weft {
namespace {

OptimizerScalars sgd_scalars(int step, bool decay) {
  return OptimizerScalars::from(
      SgdScalars{.lr = 1e-2 * step, .momentum = 0.9, .weight_decay = decay ? 0.1 : 0.0});
}

void sgd_one(const Kernels& kernels, const Context& context, const UpdateTypes& types,
             const UpdateItem& item, double grad_scale, const OptimizerScalars& s) {
  kernels.sgd(context, {.n = item.n,
                        .dtype = types.dtype,
                        .grad_dtype = types.grad_dtype,
                        .state_dtype = types.state_dtypes[0],
                        .p = item.p,
                        .master = item.master,
                        .grad = item.grad,
                        .momentum = item.states[0],
                        .grad_scale = grad_scale,
                        .scalars = s.as<SgdScalars>()});
}

const UpdateForm kWithMomentum = {"sgd", 1, sgd_scalars, sgd_one, &DeviceKernels::sgd_list};
const UpdateForm kPlain = {"sgd without momentum", 0, sgd_scalars, sgd_one,
                           &DeviceKernels::sgd_list};

TEST(Sgd, EveryLevelAgreesWithRef) {
  compare_update_levels(kWithMomentum);
  compare_update_levels(kPlain);
}

TEST(DeviceSgd, AListHasTheBitsOfSingleCalls) {
  compare_update_list(kWithMomentum);
  compare_update_list(kPlain);
  compare_update_with_squares(kWithMomentum);
  compare_update_with_squares(kPlain);
}

// torch.optim.SGD(lr=0.1, weight_decay=0.05) over four steps, torch 2.x on a CPU, fp32:
// g = g0 * step - 0.5.
TEST(Sgd, HasTorchsValues) {
  struct TorchRun {
    double momentum;
    std::vector<double> p, buffer;
  };
  const TorchRun cases[] = {
      {0.0, {0.8801506757736206, -1.065285325050354, -0.40593403577804565, 3.582993507385254}, {}},
      {0.9,
       {0.8502694964408875, -0.1689259111881256, -1.1041640043258667, 3.9222962856292725},
       {1.1667087078094482, -8.322407722473145, 8.265872955322266, -2.9414758682250977}}};
  for (const TorchRun& c : cases) {
    for (const Kernels* kernels : tested_kernels()) {
      Bench bench(1);
      TestVector<float> p = {1.0f, -2.0f, 0.5f, 3.25f}, buffer(4, 0.0f), grad(4);
      const float first[] = {0.3f, -0.7f, 1.1f, -0.2f};
      for (int step = 1; step <= 4; ++step) {
        for (size_t i = 0; i < 4; ++i) grad[i] = first[i] * static_cast<float>(step) - 0.5f;
        kernels->sgd(bench.context(0),
                     {.n = 4,
                      .dtype = Dtype::kF32,
                      .grad_dtype = Dtype::kF32,
                      .state_dtype = Dtype::kF32,
                      .p = p.data(),
                      .master = nullptr,
                      .grad = grad.data(),
                      .momentum = c.momentum > 0 ? buffer.data() : nullptr,
                      .grad_scale = 1.0,
                      .scalars = {.lr = 0.1, .momentum = c.momentum, .weight_decay = 0.05}});
      }
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(p[i], c.p[i], 1e-6) << kernels->name << " momentum " << c.momentum;
        if (c.momentum > 0) {
          EXPECT_NEAR(buffer[i], c.buffer[i], 2e-6) << kernels->name;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
