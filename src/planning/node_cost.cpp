// planning/node_cost.cpp: products by their size, attention by its own speed, the rest by bytes.
#include "planning/node_cost.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace weft {

double SpeedBySize::at(double size) const {
  const auto above = std::upper_bound(gflop.begin(), gflop.end(), size);
  if (above == gflop.begin()) return tflops.front();
  if (above == gflop.end()) return tflops.back();
  const auto i = static_cast<size_t>(above - gflop.begin());
  const double part = std::log(size / gflop[i - 1]) / std::log(gflop[i] / gflop[i - 1]);
  return tflops[i - 1] + part * (tflops[i] - tflops[i - 1]);
}

NodeCosts::NodeCosts(const DeviceSpeeds& d, Dtype compute) : copy_gb_per_s_(d.copy_gb_per_s) {
  const bool low = compute != Dtype::kF32;  // fp16 is as fast as bf16
  products_ = {d.product_gflop, low ? d.tflops_bf16 : d.tflops_fp32};
  attention_ = {d.attention_gflop, low ? d.attention_tflops_bf16 : d.attention_tflops_fp32};
  if (attention_.tflops.empty()) attention_ = products_;
  if (!products_.tflops.empty()) return;
  const char* key = low ? "device.tflops_bf16" : "device.tflops_fp32";
  throw UserError(fmt::format("the run computes in {}, but the cluster file has no {}",
                              dtype_name(compute), key),
                  fmt::format("add {}, or set train.precision to {}", key, low ? "fp32" : "bf16"));
}

NodeSeconds NodeCosts::of(const Cost& cost) const {
  const double memory = cost.bytes / copy_gb_per_s_ * 1e-9;
  if (cost.flops <= 0) return {CostKind::kMemory, memory};
  const bool is_product = cost.unit == Cost::Unit::kProducts;
  const double speed = (is_product ? products_ : attention_).at(cost.flops * 1e-9);
  return {is_product ? CostKind::kProducts : CostKind::kAttention,
          cost.flops / speed * 1e-12 + memory};
}

}  // namespace weft
