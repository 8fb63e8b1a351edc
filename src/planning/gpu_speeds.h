// planning/gpu_speeds.h: a GPU's speed of products, attention and copies: measured once, stored for
// estimates.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"
#include "exec/plan.h"
#include "tensor/device.h"

namespace weft {

struct GpuSpeeds {
  std::string gpu;                                              // what was measured
  double tflops_fp32 = 0, tflops_bf16 = 0;                      // matrix products; bf16: or fp16
  double tflops_attention_fp32 = 0, tflops_attention_bf16 = 0;  // forward and backward together
  double copy_gb_per_s = 0;                                     // bytes read plus bytes written
  // Attention of packed rows, of what cuDNN does not handle, and with dropout. 0: not measured, as
  // in a file of an earlier weft.
  double tflops_attention_packed_bf16 = 0, tflops_attention_builtin_bf16 = 0;
  double tflops_attention_dropout_fp32 = 0, tflops_attention_dropout_bf16 = 0;
  double tflops_tf32 = 0;  // fp32 products by TF32; a GPU may lack it
  double spread = 0;       // the largest of these measurements (planning/repeat.h); not kept
};

// Takes some seconds: long enough to reach a training run's clock rates. narrow: bf16, or fp16 on a
// GPU without bf16.
GpuSpeeds measure_gpu_speeds(const Kernels& kernels, Device* device, Dtype narrow);

Json gpu_speeds_to_json(const GpuSpeeds& speeds);
// Next to the CPU's (planning/speeds.h); empty where there is no home.
std::filesystem::path gpu_speeds_path();
void save_gpu_speeds(const GpuSpeeds& speeds,
                     const std::filesystem::path& path = gpu_speeds_path());
// None where none were stored, the file is damaged, or it is of another GPU than the given one
// (empty: any; plans are also made without a GPU).
std::optional<GpuSpeeds> load_gpu_speeds(const std::string& gpu,
                                         const std::filesystem::path& path = gpu_speeds_path());

// Milliseconds of one optimizer step of one rank: products and attention at the speed of the kernel
// that handles them, all other nodes at copy speed. tf32: fp32 products at TF32's speed, where
// known.
double estimate_gpu_ms(const Plan& plan, const GpuSpeeds& speeds, bool tf32 = false);

}  // namespace weft
