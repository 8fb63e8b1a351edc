// kernel/cuda/gemm_choose.h: chooses an algorithm the first time a product is seen.
#pragma once

#include <cuda_runtime.h>

#include <memory>

#include "kernel/cuda/lt.h"
#include "kernel/gpu/gemm_standard.h"

namespace weft::cuda {

// How many of the library's candidates are considered.
inline constexpr int kMostCandidates = 16;

// Device memory for a trial; null where there is none left.
class TrialMemory {
 public:
  explicit TrialMemory(int64_t bytes) {
    if (cudaMalloc(&at_, static_cast<size_t>(bytes)) != cudaSuccess) {
      at_ = nullptr;
      cudaGetLastError();  // a failed allocation leaves the device unchanged
    }
  }
  ~TrialMemory() { cudaFree(at_); }
  TrialMemory(const TrialMemory&) = delete;
  TrialMemory& operator=(const TrialMemory&) = delete;
  void* get() const { return at_; }

 private:
  void* at_ = nullptr;
};

struct GemmTrial {
  const Lt& lt;
  const LtCall& call;
  const LtPrepared& prepared;
  std::byte* workspace;  // kLtWorkspaceBytes
  void* stream;
};

// The candidates with the fastest first, timed on the call's own operands. D gets the product,
// unless it is an input too: then the trial writes elsewhere. was_measured: false where there was
// no memory for that, and the order is unchanged. RunError where there are no candidates.
std::vector<LtAlgorithm> rank_by_time(const GemmTrial& trial, std::vector<LtAlgorithm> candidates,
                                      bool* was_measured);

// The library on this device at the test's operands of the call's key. RunError where there is no
// memory for them.
std::unique_ptr<GemmLab> open_lab(const GemmTrial& trial);

}  // namespace weft::cuda
