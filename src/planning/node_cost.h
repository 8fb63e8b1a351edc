// planning/node_cost.h: how long one node of a graph computes, from the speeds of a device.
#pragma once

#include "exec/op_binding.h"
#include "planning/cluster.h"

namespace weft {

enum class CostKind { kProducts, kAttention, kMemory };

struct NodeSeconds {
  CostKind kind = CostKind::kMemory;  // what it mostly is
  double seconds = 0;
};

// A speed that depends on the size of the work, in GFLOP: what was measured, interpolated over the
// logarithm of the size; outside of that, the nearest.
struct SpeedBySize {
  std::vector<double> gflop, tflops;  // gflop: growing; empty: one speed
  double at(double size) const;
};

class NodeCosts {
 public:
  // compute: the type of the products. UserError where the cluster file has no speed for it.
  NodeCosts(const DeviceSpeeds& device, Dtype compute);
  NodeSeconds of(const Cost& cost) const;

 private:
  SpeedBySize products_, attention_;
  double copy_gb_per_s_;
};

}  // namespace weft
