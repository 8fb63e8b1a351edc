// benchmarks/gemm_probe.h: a minimal cuBLASLt wrapper for the probe. Self-contained: no other file
// of weft, and no library but CUDA's, so that it builds anywhere.
//
// Products are given row-major, as in weft: C (M, N) = A (M, K) · B (K, N).
#pragma once

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace probe {

#define PROBE_CHECK(call)                                                        \
  do {                                                                           \
    const int status_ = static_cast<int>(call);                                  \
    if (status_ != 0) {                                                          \
      std::printf("%s:%d: %s failed: %d\n", __FILE__, __LINE__, #call, status_); \
      std::exit(1);                                                              \
    }                                                                            \
  } while (false)

enum class Kind { kForward, kDx, kDw };  // x · W^T, dy · W, dy^T · x

struct Problem {
  Kind kind;
  int64_t M, N, K;
  cudaDataType_t in = CUDA_R_16BF, out = CUDA_R_16BF;
  bool accumulate = false, bias = false;
  int64_t pad = 0;   // elements after every row
  bool raw = false;  // leading dimensions as they are; else rounded up to 16 bytes
};

inline int64_t size_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : 2; }

inline int64_t row_elements(const Problem& p, int64_t columns, cudaDataType_t type) {
  const int64_t step = p.raw ? 1 : 16 / size_of(type);
  return (columns + p.pad + step - 1) / step * step;
}
inline bool a_transposed(const Problem& p) { return p.kind == Kind::kDw; }
inline bool b_transposed(const Problem& p) { return p.kind == Kind::kForward; }
inline int64_t lda(const Problem& p) { return row_elements(p, a_transposed(p) ? p.M : p.K, p.in); }
inline int64_t ldb(const Problem& p) { return row_elements(p, b_transposed(p) ? p.K : p.N, p.in); }
inline int64_t ldc(const Problem& p) { return row_elements(p, p.N, p.out); }
inline int64_t a_bytes(const Problem& p) {
  return lda(p) * (a_transposed(p) ? p.K : p.M) * size_of(p.in);
}
inline int64_t b_bytes(const Problem& p) {
  return ldb(p) * (b_transposed(p) ? p.N : p.K) * size_of(p.in);
}
inline int64_t c_bytes(const Problem& p) { return ldc(p) * p.M * size_of(p.out); }

struct Pointers {
  const std::byte *a, *b, *bias;
  std::byte* c;
};

inline constexpr size_t kWorkspace = size_t{32} << 20;
inline constexpr uint32_t kNoSplits = CUBLASLT_REDUCTION_SCHEME_NONE;
inline constexpr uint32_t kFixedOrder = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
inline constexpr uint32_t kAny = CUBLASLT_REDUCTION_SCHEME_MASK;

// The library with its workspace.
struct Lt {
  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  Lt() {
    PROBE_CHECK(cublasLtCreate(&handle));
    PROBE_CHECK(cudaMalloc(&workspace, kWorkspace));
  }
};

// With names of their own: nvcc 13.0 fails on vectors of structures that have none.
struct Candidate {
  cublasLtMatmulAlgo_t algo;
};
inline constexpr int kMostCandidates = 32;

// A prepared problem; leading dimensions may be those of a larger one of which it is a piece.
class Product {
 public:
  Product(const Problem& p, const Problem& whole) : p_(p) {
    PROBE_CHECK(cublasLtMatmulDescInit(&op_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const int32_t ta = b_transposed(p) ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t tb = a_transposed(p) ? CUBLAS_OP_T : CUBLAS_OP_N;
    PROBE_CHECK(cublasLtMatmulDescSetAttribute(&op_, CUBLASLT_MATMUL_DESC_TRANSA, &ta, 4));
    PROBE_CHECK(cublasLtMatmulDescSetAttribute(&op_, CUBLASLT_MATMUL_DESC_TRANSB, &tb, 4));
    if (p.bias) {
      const uint32_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      const int32_t type = p.out;
      PROBE_CHECK(
          cublasLtMatmulDescSetAttribute(&op_, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, 4));
      PROBE_CHECK(
          cublasLtMatmulDescSetAttribute(&op_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, 4));
    }
    layout(&a_, p.in, ta == CUBLAS_OP_T ? p.K : p.N, ta == CUBLAS_OP_T ? p.N : p.K, ldb(whole));
    layout(&b_, p.in, tb == CUBLAS_OP_T ? p.M : p.K, tb == CUBLAS_OP_T ? p.K : p.M, lda(whole));
    layout(&c_, p.out, p.N, p.M, ldc(whole));
  }

  std::vector<Candidate> candidates(const Lt& lt, uint32_t schemes, int most,
                                    uint32_t alignment = 256) {
    cublasLtMatmulPreferenceOpaque_t preference;
    PROBE_CHECK(cublasLtMatmulPreferenceInit(&preference));
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t what, const void* v, size_t n) {
      PROBE_CHECK(cublasLtMatmulPreferenceSetAttribute(&preference, what, v, n));
    };
    const uint64_t workspace = kWorkspace;
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, 8);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, 4);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignment, 4);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignment, 4);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignment, 4);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignment, 4);
    cublasLtMatmulHeuristicResult_t results[kMostCandidates];
    int count = 0;
    const auto status = cublasLtMatmulAlgoGetHeuristic(lt.handle, &op_, &a_, &b_, &c_, &c_,
                                                       &preference, most, results, &count);
    std::vector<Candidate> found;
    for (int i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; ++i) {
      if (results[i].state == CUBLAS_STATUS_SUCCESS) found.push_back({results[i].algo});
    }
    return found;
  }

  bool run(const Lt& lt, const Pointers& at, const cublasLtMatmulAlgo_t& algo) {
    const float one = 1.0f, beta = p_.accumulate ? 1.0f : 0.0f;
    if (p_.bias) {
      const void* bias = at.bias;
      PROBE_CHECK(cublasLtMatmulDescSetAttribute(&op_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                                 sizeof bias));
    }
    return cublasLtMatmul(lt.handle, &op_, &one, at.b, &a_, at.a, &b_, &beta, at.c, &c_, at.c, &c_,
                          &algo, lt.workspace, kWorkspace, nullptr) == CUBLAS_STATUS_SUCCESS;
  }

 private:
  static void layout(cublasLtMatrixLayoutOpaque_t* to, cudaDataType_t type, int64_t rows,
                     int64_t columns, int64_t ld) {
    PROBE_CHECK(cublasLtMatrixLayoutInit(to, type, static_cast<uint64_t>(rows),
                                         static_cast<uint64_t>(columns), ld));
  }
  Problem p_;
  cublasLtMatmulDescOpaque_t op_;
  cublasLtMatrixLayoutOpaque_t a_, b_, c_;
};

inline std::string config_of(const cublasLtMatmulAlgo_t& algo) {
  const auto get = [&](cublasLtMatmulAlgoConfigAttributes_t what, size_t bytes) {
    uint32_t value = 0;
    size_t written = 0;
    cublasLtMatmulAlgoConfigGetAttribute(&algo, what, &value, bytes, &written);
    return static_cast<int>(value);
  };
  char text[96];
  std::snprintf(
      text, sizeof text, "id %d tile %d st %d cl %d split %d/%d", get(CUBLASLT_ALGO_CONFIG_ID, 4),
      get(CUBLASLT_ALGO_CONFIG_TILE_ID, 4), get(CUBLASLT_ALGO_CONFIG_STAGES_ID, 4),
      get(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2), get(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4),
      get(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4));
  return text;
}

void fill_random(std::byte* to, cudaDataType_t type, int64_t bytes, uint64_t seed);

void probe_bits(const Lt& lt);   // gemm_bits.cu
void probe_speed(const Lt& lt);  // gemm_speed.cu

}  // namespace probe
