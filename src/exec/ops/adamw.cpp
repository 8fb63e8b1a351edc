// exec/ops/adamw.cpp: AdamW's kernel over one parameter, and over all on a GPU.
#include "graph/ops/adamw.h"

#include "exec/update_binding.h"

namespace weft {
namespace {

void update_adamw(const Kernels& k, const Context& c, const UpdateInputs& u, double grad_scale,
                  const OptimizerScalars& s) {
  AdamwScalars scalars = s.as<AdamwScalars>();
  if (!u.item.decay) scalars.weight_decay = 0;
  k.adamw(c, {.n = u.item.n,
              .dtype = u.types.dtype,
              .grad_dtype = u.types.grad_dtype,
              .state_dtype = u.types.state_dtypes[0],
              .p = u.item.p,
              .master = u.item.master,
              .grad = u.item.grad,
              .m = u.item.states[0],
              .v = u.item.states[1],
              .grad_scale = grad_scale,
              .scalars = scalars});
}

}  // namespace

void add_adamw_bindings(Bindings* bindings) {
  bindings->push_back(update_binding(&kAdamwOp, {update_adamw, &DeviceKernels::adamw_list}));
}

}  // namespace weft
