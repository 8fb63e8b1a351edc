// kernel/cuda/gemm.cpp: matrix products by cuBLASLt, an algorithm chosen once for every problem; in
// exact mode by the built-in kernel where the library's bits are not invariant.
#include <cuda_runtime.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/round_up.h"
#include "kernel/cuda/gemm_choose.h"
#include "kernel/cuda/gemm_kernels.h"
#include "kernel/cuda/gemm_own.h"
#include "kernel/cuda/launch.h"
#include "kernel/cuda/ops.h"
#include "kernel/gpu/cuda_options.h"
#include "kernel/gpu/kept_choices.h"

namespace weft {
namespace cuda {
namespace {

constexpr int64_t kWorkspaceAlignment = 256;

std::atomic<GemmChoice> choice_now{GemmChoice::kFast};
std::atomic<bool> tf32_now{false};

struct Known {
  LtPrepared prepared;
  std::optional<LtAlgorithm> algorithm;  // none: the built-in kernel
};

// What is known of products on one device.
class Products {
 public:
  explicit Products(int device) {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    int driver = 0;
    check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    has_tf32_ = properties.major >= 8;
    const auto kept = [&](const char* name, const std::string& suffix) {
      return KeptChoices(
          fmt::format("weft {} 1 | {} | compute {}.{} | cublasLt {} | driver {}", name,
                      properties.name, properties.major, properties.minor, lt_.version(), driver),
          gemm_choices_path(properties.name + suffix, lt_.version()));
    };
    kept_fast_ = std::make_unique<KeptChoices>(kept("products", ""));
    kept_exact_ = std::make_unique<KeptChoices>(kept("exact products", "-exact"));
  }

  void run(const Context& context, LtCall call, std::byte* workspace) {
    const GemmChoice choice = choice_now.load(std::memory_order_relaxed);
    call.problem.is_tf32 = has_tf32_ && call.problem.dtype == Dtype::kF32 &&
                           choice == GemmChoice::kFast && tf32_now.load(std::memory_order_relaxed);
    const Known& known = find(context, call, choice, workspace);
    if (known.algorithm) {
      multiply(lt_, call, known.prepared, *known.algorithm, workspace, context.stream);
    } else {
      own_product(context, call);
    }
  }

 private:
  const Known& find(const Context& context, const LtCall& call, GemmChoice choice,
                    std::byte* workspace) {
    const std::lock_guard lock(mutex_);
    auto& table = choice == GemmChoice::kExact ? exact_ : fast_;
    const auto found = table.find(call.problem);
    if (found != table.end()) {
      (choice == GemmChoice::kExact ? kept_exact_ : kept_fast_)->note_known_call();
      return found->second;
    }
    cudaStreamCaptureStatus status{};
    check(cudaStreamIsCapturing(stream_of(context), &status), "cudaStreamIsCapturing");
    ensure(status == cudaStreamCaptureStatusNone,
           "a product was captured before it was run once: " + weft::describe(call.problem));
    Known known{prepare(call.problem), {}};
    const GemmTrial trial{lt_, call, known.prepared, workspace, context.stream};
    if (choice == GemmChoice::kExact) {
      known.algorithm = choose_exact(trial);
    } else {
      known.algorithm = choose_fast(trial);
    }
    return table.emplace(call.problem, known).first->second;  // stays where it is
  }

  // None: the built-in kernel.
  std::optional<LtAlgorithm> choose_exact(const GemmTrial& trial) {
    const LtProblem& problem = trial.call.problem;
    const GemmKey key = key_of(problem);
    const auto kept = standards_.find(key);
    if (kept != standards_.end() && kept->second.is_own()) return std::nullopt;
    const auto lab = key.k < kLeastLibraryK ? nullptr : open_lab(trial);
    if (kept == standards_.end()) keep_standard(key, lab.get());
    const GemmStandard& standard = standards_.at(key);
    if (standard.is_own()) return std::nullopt;
    const LtAlgorithm* known = kept_exact_->find(problem);
    if (const auto choice = find_exact(problem, standard, known, lab.get())) {
      if (choice->was_measured) kept_exact_->keep(problem, choice->algorithm);
      return choice->algorithm;
    }
    throw RunError("no cuBLASLt algorithm has, for " + weft::describe(problem) +
                       ", the bits of other products with this k",
                   "parallel.mode: fast does not need them");
  }

  void keep_standard(const GemmKey& key, GemmLab* lab) {
    const GemmStandard& standard = standards_[key] = find_standard(key, lab);
    if (lab && standard.is_own()) {
      log_info("exact mode: cuBLASLt's bits depend on the cut for {}; using weft's built-in kernel",
               weft::describe(standard_problem(key)));
    }
  }

  LtAlgorithm choose_fast(const GemmTrial& trial) {
    const auto accepts_kept = [&](LtAlgorithm* kept) {
      return accepts(trial.lt, trial.call, trial.prepared, kept);
    };
    return kept_fast_->choose(trial.call.problem, accepts_kept, [&] {
      bool was_measured = false;
      const LtAlgorithm best = rank_by_time(
          trial, find_candidates(trial.lt, trial.call, trial.prepared, true, kMostCandidates),
          &was_measured)[0];
      return KeptChoices::Measured{best, was_measured};
    });
  }

  Lt lt_;
  bool has_tf32_ = false;
  std::unique_ptr<KeptChoices> kept_fast_, kept_exact_;
  std::mutex mutex_;
  std::unordered_map<LtProblem, Known, LtProblemHash> fast_, exact_;
  std::map<GemmKey, GemmStandard> standards_;
};

// Never destroyed: at program exit the driver may be gone before them.
Products& products_here() {
  static std::mutex mutex;
  static auto& all = *new std::map<int, std::unique_ptr<Products>>;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard lock(mutex);
  auto& products = all[device];
  if (!products) products = std::make_unique<Products>(device);
  return *products;
}

std::byte* aligned(std::byte* at) {
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(at));
  return at + (round_up(address, kWorkspaceAlignment) - address);
}

}  // namespace

size_t gemm_workspace(const GemmArgs& args, int) {
  return static_cast<size_t>(kWorkspaceAlignment + kLtWorkspaceBytes) + gemm_steps_workspace(args);
}

void gemm(const Context& context, const GemmArgs& args) {
  ensure((args.dtype == Dtype::kF32 || dtype_bytes(args.dtype) == 2) &&
             (args.c_dtype == Dtype::kF32 || args.c_dtype == args.dtype),
         "GPU products take fp32, bf16 or fp16, and yield the same or fp32");
  ensure(context.workspace_bytes >= gemm_workspace(args, 1), "too little workspace for a product");
  std::byte* workspace = aligned(context.workspace);
  thread_local std::vector<GemmStep> steps;  // its memory is reused
  steps.clear();
  plan_gemm(args, workspace + kLtWorkspaceBytes, &steps);
  for (const GemmStep& step : steps) {
    if (const auto* call = std::get_if<LtCall>(&step)) {
      products_here().run(context, *call, workspace);
    } else if (const auto* parts = std::get_if<PackCall>(&step)) {
      pack_parts(context, *parts);
    } else {
      add_up(context, std::get<SumCall>(step));
    }
  }
}

}  // namespace cuda

void set_gemm_choice(GemmChoice choice) { cuda::choice_now = choice; }
GemmChoice gemm_choice() { return cuda::choice_now; }
void set_tf32(bool is_allowed) { cuda::tf32_now = is_allowed; }

}  // namespace weft
