// train/numerics.h: what determines the bits of a run besides its rows: the numerics fingerprint.
//
// It is stored in state.json, and ranks whose fingerprints differ are rejected at the start: they
// would silently train different models.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "config/run_config.h"
#include "kernel/kernels.h"
#include "planning/layout.h"
#include "tensor/device.h"

namespace weft {

// To be raised when a change affects a formula, an order of additions or a block size that bits
// depend on.
inline constexpr int kNumericsVersion = 2;

// An object of plain values: weft, version, kernels, precision, tf32, master_weights, mode,
// exact_tp, exact_dp, exact_rows (null in fast mode), and probe: a hash of what the kernels compute
// from fixed numbers, which distinguishes builds that claim to be equal.
Json numerics_fingerprint(const RunConfig& config, const Layout& layout, const Kernels& kernels,
                          const Device& device = host_device());

// The hash of what these kernels give: products, norm, swiglu, attention, loss, the optimizer's
// update.
std::string probe_kernels(const Kernels& kernels, Dtype dtype,
                          const std::string& optimizer = OptimizerConfig().name);

// "kernels: neon NAME_A, ref NAME_B" for every key in which two fingerprints differ.
std::vector<std::string> numerics_differences(const Json& a, const std::string& name_a,
                                              const Json& b, const std::string& name_b);

// A warning where an exact-mode run resumes from a checkpoint (its state.json) whose kernels
// computed differently: from there on the bits are those of this machine.
void warn_of_other_numerics(const Json& state, const Json& now);
// The warning's text; empty: computing in the run's precision is the same.
std::string other_numerics(const Json& state, const Json& now);

}  // namespace weft
