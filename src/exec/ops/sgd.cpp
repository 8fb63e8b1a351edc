// exec/ops/sgd.cpp: SGD's kernel over one parameter, and over all on a GPU.
#include "graph/ops/sgd.h"

#include "exec/update_binding.h"

namespace weft {
namespace {

void update_sgd(const Kernels& k, const Context& c, const UpdateInputs& u, double grad_scale,
                const OptimizerScalars& s) {
  SgdScalars scalars = s.as<SgdScalars>();
  if (!u.item.decay) scalars.weight_decay = 0;
  k.sgd(c, {.n = u.item.n,
            .dtype = u.types.dtype,
            .grad_dtype = u.types.grad_dtype,
            .state_dtype = u.types.state_dtypes[0],
            .p = u.item.p,
            .master = u.item.master,
            .grad = u.item.grad,
            .momentum = u.item.states[0],
            .grad_scale = grad_scale,
            .scalars = scalars});
}

}  // namespace

void add_sgd_bindings(Bindings* bindings) {
  bindings->push_back(update_binding(&kSgdOp, {update_sgd, &DeviceKernels::sgd_list}));
}

}  // namespace weft
