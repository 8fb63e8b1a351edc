// kernel/head_kernels.h: what surrounds the products of the head (exec/head.h), for either device.
#pragma once

#include "kernel/device_kernels.h"

namespace weft {

// The contracts are documented with the arguments in kernel/device_kernels.h.
struct HeadKernels {
  void (*take_rows)(const Context&, const TakeRowsArgs&);
  void (*store_leaf_stats)(const Context&, const LeafStatsArgs&);
  void (*store_target_logit)(const Context&, const TargetLogitArgs&);
  void (*join_leaves)(const Context&, const JoinLeavesArgs&);
  void (*local_targets)(const Context&, const LocalTargetsArgs&);
};

// Those of the device that the kernels are for.
HeadKernels head_kernels(const Kernels& kernels);

}  // namespace weft
