// kernel/cuda/gemm_fast.cpp: runs candidates and chooses the fastest.
//
// All candidates are timed briefly, then the best three longer. A product takes 0.05 to 3 ms, so a
// trial takes some 20 to 150 ms, once per machine: the choice is stored in a file.
#include <algorithm>

#include "base/error.h"
#include "kernel/cuda/gemm_choose.h"
#include "tensor/cuda/check.h"

namespace weft::cuda {
namespace {

constexpr double kShortMs = 0.8, kLongMs = 4.0;
constexpr size_t kFinalists = 3;

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

struct Timed {
  LtAlgorithm algorithm;
  double ms;
};

class Clock {
 public:
  Clock(const GemmTrial& trial, const LtCall& call)
      : trial_(trial), call_(call), stream_(static_cast<cudaStream_t>(trial.stream)) {}

  // Milliseconds of one product; negative where the library rejects it.
  double time(const LtAlgorithm& algorithm, double wanted_ms) {
    if (run(algorithm, 1) < 0) return -1;  // loads the kernel
    const double once = run(algorithm, 1);
    if (once < 0 || once >= wanted_ms) return once;
    const int count = std::clamp(static_cast<int>(wanted_ms / std::max(once, 1e-3)), 2, 20);
    return run(algorithm, count);
  }

 private:
  double run(const LtAlgorithm& algorithm, int count) {
    check(cudaEventRecord(begin_.get(), stream_), "cudaEventRecord");
    for (int i = 0; i < count; ++i) {
      if (!try_multiply(trial_.lt, call_, trial_.prepared, algorithm, trial_.workspace,
                        trial_.stream)) {
        return -1;
      }
    }
    check(cudaEventRecord(end_.get(), stream_), "cudaEventRecord");
    check(cudaEventSynchronize(end_.get()), "a trial of a product");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_.get(), end_.get()), "cudaEventElapsedTime");
    return static_cast<double>(ms) / count;
  }

  const GemmTrial& trial_;
  const LtCall& call_;
  cudaStream_t stream_;
  Event begin_, end_;
};

int64_t d_bytes(const LtProblem& p) { return p.n * p.ldd * dtype_bytes(p.d_dtype); }

}  // namespace

std::vector<LtAlgorithm> rank_by_time(const GemmTrial& trial, std::vector<LtAlgorithm> candidates,
                                      bool* was_measured) {
  const LtProblem& p = trial.call.problem;
  if (candidates.empty()) throw RunError("cuBLASLt has no algorithm for " + weft::describe(p));
  *was_measured = candidates.size() == 1;
  if (candidates.size() == 1) return candidates;

  LtCall call = trial.call;
  const bool elsewhere = p.adds_c && p.c_is_d;
  const TrialMemory scratch(elsewhere ? d_bytes(p) : 256);
  if (!scratch.get()) return candidates;
  if (elsewhere) {
    check(cudaMemsetAsync(scratch.get(), 0, static_cast<size_t>(d_bytes(p)),
                          static_cast<cudaStream_t>(trial.stream)),
          "cudaMemsetAsync");
    call.d = scratch.get();
    call.c = scratch.get();
  }
  Clock clock(trial, call);
  std::vector<Timed> timed;
  for (const LtAlgorithm& candidate : candidates) {
    const double ms = clock.time(candidate, kShortMs);
    if (ms >= 0) timed.push_back({candidate, ms});
  }
  if (timed.empty()) fail_if_lost("trials of products");
  if (timed.empty()) throw RunError("cuBLASLt runs no algorithm for " + weft::describe(p));
  const auto is_faster = [](const Timed& a, const Timed& b) { return a.ms < b.ms; };
  std::stable_sort(timed.begin(), timed.end(), is_faster);
  const auto finalists = timed.begin() + static_cast<int64_t>(std::min(timed.size(), kFinalists));
  for (auto t = timed.begin(); t != finalists; ++t) {
    const double ms = clock.time(t->algorithm, kLongMs);
    if (ms >= 0) t->ms = ms;
  }
  std::stable_sort(timed.begin(), finalists, is_faster);
  *was_measured = true;
  candidates.clear();
  for (const Timed& t : timed) candidates.push_back(t.algorithm);
  return candidates;
}

}  // namespace weft::cuda
