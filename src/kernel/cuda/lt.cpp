// kernel/cuda/lt.cpp: every call into cuBLASLt, with error checks.
#include "kernel/cuda/lt.h"

#include <cublasLt.h>

#include <cstring>

#include "base/error.h"
#include "kernel/gpu/cuda_options.h"
#include "tensor/cuda/check.h"

namespace weft::cuda {
namespace {

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(LtAlgorithm::data));
static_assert(sizeof(cublasLtMatmulDescOpaque_t) == sizeof(LtPrepared::operation));
static_assert(sizeof(cublasLtMatrixLayoutOpaque_t) == sizeof(LtPrepared::a));

void check(cublasStatus_t status, const char* what, const LtProblem* problem = nullptr) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string text = fmt::format("{} failed: {}{}{}", what, cublasLtGetStatusName(status),
                                       problem ? " for " : "", problem ? describe(*problem) : "");
  // A device failure, out of memory, or an invalid call by weft.
  if (status == CUBLAS_STATUS_ALLOC_FAILED) fail(cudaErrorMemoryAllocation, text.c_str());
  if (status == CUBLAS_STATUS_EXECUTION_FAILED || status == CUBLAS_STATUS_NOT_INITIALIZED ||
      status == CUBLAS_STATUS_INTERNAL_ERROR) {
    fail_device(text);
  }
  fail_if_lost(text);
  throw BugError(text);
}

cublasLtHandle_t handle_of(const Lt& lt) { return static_cast<cublasLtHandle_t>(lt.handle()); }

cublasLtMatmulDesc_t operation_of(const LtPrepared& p) {
  auto* words = const_cast<uint64_t*>(p.operation.data());
  return reinterpret_cast<cublasLtMatmulDesc_t>(words);
}

cublasLtMatrixLayout_t layout_of(const std::array<uint64_t, 8>& words) {
  return reinterpret_cast<cublasLtMatrixLayout_t>(const_cast<uint64_t*>(words.data()));
}

cublasLtMatmulAlgo_t algo_of(const LtAlgorithm& algorithm) {
  cublasLtMatmulAlgo_t algo;
  std::memcpy(&algo, algorithm.data.data(), sizeof algo);
  return algo;
}

LtAlgorithm algorithm_of(const cublasLtMatmulHeuristicResult_t& result) {
  LtAlgorithm algorithm;
  std::memcpy(algorithm.data.data(), &result.algo, sizeof result.algo);
  algorithm.workspace_bytes = result.workspaceSize;
  return algorithm;
}

cudaDataType_t type_of(Dtype dtype) {
  if (dtype == Dtype::kF32) return CUDA_R_32F;
  if (dtype == Dtype::kBf16) return CUDA_R_16BF;
  if (dtype == Dtype::kF16) return CUDA_R_16F;
  throw BugError(fmt::format("GPU products take fp32, bf16 or fp16, not {}", dtype_name(dtype)));
}

template <typename T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
        "cublasLtMatmulDescSetAttribute");
}

template <typename T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
        "cublasLtMatmulPreferenceSetAttribute");
}

// A field of the algorithm's configuration; `absent` where it has no such field.
template <typename T>
T config(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t attribute,
         T absent) {
  T value{};
  size_t written = 0;
  const auto status =
      cublasLtMatmulAlgoConfigGetAttribute(&algo, attribute, &value, sizeof value, &written);
  return status == CUBLAS_STATUS_SUCCESS ? value : absent;
}

bool adds_out_of_place(const cublasLtMatmulAlgo_t& algo) {
  int32_t value = 0;
  size_t written = 0;
  const auto status = cublasLtMatmulAlgoCapGetAttribute(
      &algo, CUBLASLT_ALGO_CAP_OUT_OF_PLACE_RESULT_SUPPORT, &value, sizeof value, &written);
  return status != CUBLAS_STATUS_SUCCESS || value != 0;
}

// Double-checks the preferences.
bool is_allowed(const LtProblem& problem, const cublasLtMatmulAlgo_t& algo, bool allow_splits) {
  if (problem.adds_c && !problem.c_is_d && !adds_out_of_place(algo)) return false;
  const auto splits = config<int32_t>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 1);
  const auto scheme = config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 0);
  if (scheme == CUBLASLT_REDUCTION_SCHEME_NONE) return splits <= 1;
  return allow_splits && scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
}

// A copy of the operation with this call's bias.
cublasLtMatmulDescOpaque_t with_bias(const LtCall& call, const LtPrepared& prepared) {
  cublasLtMatmulDescOpaque_t operation;
  std::memcpy(&operation, prepared.operation.data(), sizeof operation);
  if (call.bias) set(&operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, call.bias);
  return operation;
}

cublasStatus_t queue(const Lt& lt, const LtCall& call, const LtPrepared& prepared,
                     const LtAlgorithm& algorithm, std::byte* workspace, void* stream) {
  const float alpha = 1.0f, beta = call.problem.adds_c ? 1.0f : 0.0f;
  cublasLtMatmulDescOpaque_t operation = with_bias(call, prepared);
  const cublasLtMatmulAlgo_t algo = algo_of(algorithm);
  return cublasLtMatmul(handle_of(lt), &operation, &alpha, call.a, layout_of(prepared.a), call.b,
                        layout_of(prepared.b), &beta, call.c, layout_of(prepared.c), call.d,
                        layout_of(prepared.d), &algo, workspace,
                        static_cast<size_t>(kLtWorkspaceBytes), static_cast<cudaStream_t>(stream));
}

void init(std::array<uint64_t, 8>* layout, Dtype dtype, int64_t rows, int64_t columns, int64_t ld) {
  check(cublasLtMatrixLayoutInit(layout_of(*layout), type_of(dtype), static_cast<uint64_t>(rows),
                                 static_cast<uint64_t>(columns), ld),
        "cublasLtMatrixLayoutInit");
}

}  // namespace

Lt::Lt() {
  cublasLtHandle_t handle = nullptr;
  check(cublasLtCreate(&handle), "cublasLtCreate");
  handle_ = handle;
}

size_t Lt::version() const { return cublasLtGetVersion(); }

LtPrepared prepare(const LtProblem& p) {
  LtPrepared made{};
  const cublasLtMatmulDesc_t operation = operation_of(made);
  // fp32 accumulation of fp32, bf16 or fp16 operands.
  ensure(!p.is_tf32 || p.dtype == Dtype::kF32, "TF32 is for fp32 operands");
  const cublasComputeType_t compute = p.is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  check(cublasLtMatmulDescInit(operation, compute, CUDA_R_32F), "cublasLtMatmulDescInit");
  const auto op = [](bool transposed) {
    return static_cast<int32_t>(transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  };
  set(operation, CUBLASLT_MATMUL_DESC_TRANSA, op(p.a_transposed));
  set(operation, CUBLASLT_MATMUL_DESC_TRANSB, op(p.b_transposed));
  if (p.has_bias) {
    set(operation, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(CUBLASLT_EPILOGUE_BIAS));
    set(operation, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<int32_t>(type_of(p.d_dtype)));
  }
  init(&made.a, p.dtype, p.a_transposed ? p.k : p.m, p.a_transposed ? p.m : p.k, p.lda);
  init(&made.b, p.dtype, p.b_transposed ? p.n : p.k, p.b_transposed ? p.k : p.n, p.ldb);
  init(&made.c, p.d_dtype, p.m, p.n, p.ldc);
  init(&made.d, p.d_dtype, p.m, p.n, p.ldd);
  return made;
}

std::vector<LtAlgorithm> find_candidates(const Lt& lt, const LtCall& call,
                                         const LtPrepared& prepared, bool allow_splits, int most) {
  cublasLtMatmulPreferenceOpaque_t preference;
  check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
      static_cast<uint64_t>(kLtWorkspaceBytes));
  // Sums of parts in fp32 in the workspace have a fixed order; those in the output's type would
  // round every part.
  const uint32_t schemes =
      allow_splits ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
  set(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
  const auto alignment = static_cast<uint32_t>(call.problem.alignment);
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
  cublasLtMatmulDescOpaque_t operation = with_bias(call, prepared);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<size_t>(most));
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_of(lt), &operation, layout_of(prepared.a), layout_of(prepared.b),
      layout_of(prepared.c), layout_of(prepared.d), &preference, most, results.data(), &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check(status, "cublasLtMatmulAlgoGetHeuristic", &call.problem);
  std::vector<LtAlgorithm> candidates;
  for (int i = 0; i < found; ++i) {
    const auto& result = results[static_cast<size_t>(i)];
    if (result.state != CUBLAS_STATUS_SUCCESS) continue;
    if (is_allowed(call.problem, result.algo, allow_splits)) {
      candidates.push_back(algorithm_of(result));
    }
  }
  return candidates;
}

bool accepts(const Lt& lt, const LtCall& call, const LtPrepared& prepared, LtAlgorithm* algorithm) {
  cublasLtMatmulHeuristicResult_t result{};
  cublasLtMatmulDescOpaque_t operation = with_bias(call, prepared);
  const cublasLtMatmulAlgo_t algo = algo_of(*algorithm);
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(
      handle_of(lt), &operation, layout_of(prepared.a), layout_of(prepared.b),
      layout_of(prepared.c), layout_of(prepared.d), &algo, &result);
  if (status != CUBLAS_STATUS_SUCCESS) return false;
  algorithm->workspace_bytes = result.workspaceSize;
  return result.workspaceSize <= static_cast<size_t>(kLtWorkspaceBytes);
}

std::string describe(const LtAlgorithm& algorithm) {
  const cublasLtMatmulAlgo_t algo = algo_of(algorithm);
  return fmt::format("algorithm {} tile {} stages {} cluster {} splits {} reduction {}",
                     config<int32_t>(algo, CUBLASLT_ALGO_CONFIG_ID, -1),
                     config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_TILE_ID, 0),
                     config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, 0),
                     config<uint16_t>(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 0),
                     config<int32_t>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 1),
                     config<uint32_t>(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 0));
}

void multiply(const Lt& lt, const LtCall& call, const LtPrepared& prepared,
              const LtAlgorithm& algorithm, std::byte* workspace, void* stream) {
  check(queue(lt, call, prepared, algorithm, workspace, stream), "cublasLtMatmul", &call.problem);
}

bool try_multiply(const Lt& lt, const LtCall& call, const LtPrepared& prepared,
                  const LtAlgorithm& algorithm, std::byte* workspace, void* stream) {
  return queue(lt, call, prepared, algorithm, workspace, stream) == CUBLAS_STATUS_SUCCESS;
}

}  // namespace weft::cuda

std::string weft::cublas_version() {
  const size_t version = cublasLtGetVersion();  // 130100: 13.1.0
  if (version == 0) return "";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string weft::cuda_libraries() {
  const std::string cudnn = cudnn_version();
  return fmt::format("cuBLASLt {}, {}", cublasLtGetVersion(),
                     cudnn.empty() ? "no cuDNN" : "cuDNN " + cudnn);
}
