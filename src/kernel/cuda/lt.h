// kernel/cuda/lt.h: cuBLASLt, wrapped: descriptors, candidates, one call.
//
// The library's own header stays in lt.cpp; its structures are plain data, stored here as such.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "kernel/gpu/gemm_choices.h"

namespace weft::cuda {

// The library on the current device. Thread-safe. It lives as long as the program.
class Lt {
 public:
  Lt();
  Lt(const Lt&) = delete;
  Lt& operator=(const Lt&) = delete;
  void* handle() const { return handle_; }
  size_t version() const;

 private:
  void* handle_ = nullptr;
};

// Descriptors of a problem, made once.
struct LtPrepared {
  std::array<uint64_t, 32> operation;
  std::array<uint64_t, 8> a, b, c, d;
};
LtPrepared prepare(const LtProblem& problem);

// Up to `most` algorithms in the library's order of expected time. allow_splits: a chain over k may
// be split into several, added in fp32 in a fixed order; else never.
std::vector<LtAlgorithm> find_candidates(const Lt& lt, const LtCall& call,
                                         const LtPrepared& prepared, bool allow_splits, int most);

// Whether the library accepts this algorithm for this problem here; sets its workspace.
bool accepts(const Lt& lt, const LtCall& call, const LtPrepared& prepared, LtAlgorithm* algorithm);

// "algorithm 66 tile 25 stages 36 splits 1 reduction 0": for reports.
std::string describe(const LtAlgorithm& algorithm);

// Queues the product. workspace: kLtWorkspaceBytes, 256-byte aligned.
void multiply(const Lt& lt, const LtCall& call, const LtPrepared& prepared,
              const LtAlgorithm& algorithm, std::byte* workspace, void* stream);
// The same for trying candidates: false where the library rejects it.
[[nodiscard]] bool try_multiply(const Lt& lt, const LtCall& call, const LtPrepared& prepared,
                                const LtAlgorithm& algorithm, std::byte* workspace, void* stream);

}  // namespace weft::cuda
