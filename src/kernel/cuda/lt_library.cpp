// kernel/cuda/lt_library.cpp: the functions of cuBLASLt that lt.cpp calls, found in the library
// when they are first called.
//
// Loaded and not linked, as cuDNN and NCCL are: one program then serves machines with GPUs and
// without. A GPU without this library is not used (count_cuda_devices).
#include <cublasLt.h>

#include "kernel/cuda/forward.h"

#define WEFT_LT(name, parameters, arguments)                                                 \
  WEFT_FORWARD(weft::cuda::cublas_lt(), CUBLAS_STATUS_NOT_INITIALIZED, cublasStatus_t, name, \
               parameters, arguments)

extern "C" {

WEFT_FORWARD(weft::cuda::cublas_lt(), 0, size_t, cublasLtGetVersion, (), ())
WEFT_FORWARD(weft::cuda::cublas_lt(), "cuBLASLt is not installed", const char*,
             cublasLtGetStatusName, (cublasStatus_t status), (status))
WEFT_LT(cublasLtCreate, (cublasLtHandle_t * handle), (handle))
WEFT_LT(cublasLtMatmul,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void* alpha, const void* a,
         cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout,
         const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d,
         cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algo, void* workspace,
         size_t bytes, cudaStream_t stream),
        (handle, operation, alpha, a, a_layout, b, b_layout, beta, c, c_layout, d, d_layout, algo,
         workspace, bytes, stream))
WEFT_LT(cublasLtMatmulAlgoGetHeuristic,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
         cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
         cublasLtMatmulPreference_t preference, int most, cublasLtMatmulHeuristicResult_t* results,
         int* found),
        (handle, operation, a, b, c, d, preference, most, results, found))
WEFT_LT(cublasLtMatmulAlgoCheck,
        (cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
         cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
         const cublasLtMatmulAlgo_t* algo, cublasLtMatmulHeuristicResult_t* result),
        (handle, operation, a, b, c, d, algo, result))
WEFT_LT(cublasLtMatmulAlgoCapGetAttribute,
        (const cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoCapAttributes_t attribute, void* value,
         size_t bytes, size_t* written),
        (algo, attribute, value, bytes, written))
WEFT_LT(cublasLtMatmulAlgoConfigGetAttribute,
        (const cublasLtMatmulAlgo_t* algo, cublasLtMatmulAlgoConfigAttributes_t attribute,
         void* value, size_t bytes, size_t* written),
        (algo, attribute, value, bytes, written))
WEFT_LT(cublasLtMatmulDescInit_internal,
        (cublasLtMatmulDesc_t operation, size_t bytes, cublasComputeType_t compute,
         cudaDataType_t scale),
        (operation, bytes, compute, scale))
WEFT_LT(cublasLtMatmulDescSetAttribute,
        (cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute,
         const void* value, size_t bytes),
        (operation, attribute, value, bytes))
WEFT_LT(cublasLtMatmulPreferenceInit_internal,
        (cublasLtMatmulPreference_t preference, size_t bytes), (preference, bytes))
WEFT_LT(cublasLtMatmulPreferenceSetAttribute,
        (cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const void* value, size_t bytes),
        (preference, attribute, value, bytes))
WEFT_LT(cublasLtMatrixLayoutInit_internal,
        (cublasLtMatrixLayout_t layout, size_t bytes, cudaDataType type, uint64_t rows,
         uint64_t columns, int64_t ld),
        (layout, bytes, type, rows, columns, ld))

}  // extern "C"
