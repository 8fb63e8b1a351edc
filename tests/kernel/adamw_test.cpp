// tests/kernel/adamw_test.cpp: AdamW on every backend, and its list on a GPU.
#include "tests/kernel/update_case.h"

namespace weft {
namespace {

OptimizerScalars adamw_scalars(int step, bool decay) {
  return OptimizerScalars::from(AdamwScalars{.lr = 1e-2,
                                             .beta1 = 0.9,
                                             .beta2 = 0.999,
                                             .eps = 1e-8,
                                             .weight_decay = decay ? 0.1 : 0.0,
                                             .bias1 = 1.0 - std::pow(0.9, step),
                                             .bias2 = 1.0 - std::pow(0.999, step)});
}

void adamw_one(const Kernels& kernels, const Context& context, const UpdateTypes& types,
               const UpdateItem& item, double grad_scale, const OptimizerScalars& s) {
  kernels.adamw(context, {.n = item.n,
                          .dtype = types.dtype,
                          .grad_dtype = types.grad_dtype,
                          .state_dtype = types.state_dtypes[0],
                          .p = item.p,
                          .master = item.master,
                          .grad = item.grad,
                          .m = item.states[0],
                          .v = item.states[1],
                          .grad_scale = grad_scale,
                          .scalars = s.as<AdamwScalars>()});
}

const UpdateForm kForm = {"adamw", 2, adamw_scalars, adamw_one, &DeviceKernels::adamw_list};

TEST(Adamw, EveryLevelAgreesWithRef) { compare_update_levels(kForm); }

TEST(DeviceAdamw, AListHasTheBitsOfSingleCalls) { compare_update_list(kForm); }

TEST(DeviceAdamw, SumsTheSquaresOfItsGradients) { compare_update_with_squares(kForm); }

}  // namespace
}  // namespace weft
