// kernel/cuda/cudnn_library.cpp: the functions of cuDNN that its frontend calls, found in the
// library when they are first called.
//
// Loaded and not linked: where there is none weft's built-in attention is used. The same for NVRTC,
// which the frontend references and attention never calls.
#include <cudnn.h>
#include <fmt/core.h>
#include <nvrtc.h>

#include <string>

#include "kernel/cuda/attention.h"
#include "kernel/cuda/forward.h"
#include "kernel/gpu/cuda_options.h"

namespace {

using weft::cuda::Library, weft::cuda::load_library;

// In the major versions that this program was built with; they stay loaded.
const Library& cudnn() {
  static const Library library = [] {
    if (!weft::wants_cudnn()) return Library{nullptr, "WEFT_CUDNN is off"};
    return load_library(fmt::format("libcudnn.so.{}", CUDNN_MAJOR));
  }();
  return library;
}
const Library& nvrtc() {
  static const Library library = load_library(fmt::format("libnvrtc.so.{}", CUDART_VERSION / 1000));
  return library;
}

}  // namespace

bool weft::cuda::find_cudnn(std::string* why_none) {
  if (why_none) *why_none = cudnn().why;
  return cudnn().handle != nullptr;
}

#define WEFT_CUDNN(name, parameters, arguments)                                                    \
  WEFT_FORWARD(cudnn(), CUDNN_STATUS_NOT_INITIALIZED, cudnnStatus_t CUDNNWINAPI, name, parameters, \
               arguments)
#define WEFT_NVRTC(name, parameters, arguments) \
  WEFT_FORWARD(nvrtc(), NVRTC_ERROR_INTERNAL_ERROR, nvrtcResult, name, parameters, arguments)

extern "C" {

WEFT_FORWARD(cudnn(), 0, size_t CUDNNWINAPI, cudnnGetVersion, (), ())
WEFT_FORWARD(cudnn(), "cuDNN is not installed", const char* CUDNNWINAPI, cudnnGetErrorString,
             (cudnnStatus_t status), (status))
WEFT_FORWARD(cudnn(), void(), void CUDNNWINAPI, cudnnGetLastErrorString,
             (char* message, size_t most), (message, most))
WEFT_CUDNN(cudnnCreate, (cudnnHandle_t * handle), (handle))
WEFT_CUDNN(cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream), (handle, stream))
WEFT_CUDNN(cudnnGetStream, (cudnnHandle_t handle, cudaStream_t* stream), (handle, stream))
WEFT_CUDNN(cudnnBackendCreateDescriptor,
           (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* made), (type, made))
WEFT_CUDNN(cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor), (descriptor))
WEFT_CUDNN(cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor), (descriptor))
WEFT_CUDNN(cudnnBackendSetAttribute,
           (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
            cudnnBackendAttributeType_t type, int64_t count, const void* elements),
           (descriptor, name, type, count, elements))
WEFT_CUDNN(cudnnBackendGetAttribute,
           (cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
            cudnnBackendAttributeType_t type, int64_t wanted, int64_t* count, void* elements),
           (descriptor, name, type, wanted, count, elements))
WEFT_CUDNN(cudnnBackendExecute,
           (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack),
           (handle, plan, pack))
WEFT_CUDNN(cudnnCreateFilterDescriptor, (cudnnFilterDescriptor_t * made), (made))
WEFT_CUDNN(cudnnDestroyFilterDescriptor, (cudnnFilterDescriptor_t descriptor), (descriptor))
WEFT_CUDNN(cudnnSetFilterNdDescriptor,
           (cudnnFilterDescriptor_t descriptor, cudnnDataType_t type, cudnnTensorFormat_t format,
            int count, const int dims[]),
           (descriptor, type, format, count, dims))
WEFT_CUDNN(cudnnReorderFilterAndBias,
           (cudnnHandle_t handle, const cudnnFilterDescriptor_t descriptor, cudnnReorderType_t type,
            const void* filter, void* reordered_filter, int reorder_bias, const void* bias,
            void* reordered_bias),
           (handle, descriptor, type, filter, reordered_filter, reorder_bias, bias, reordered_bias))

WEFT_NVRTC(nvrtcCreateProgram,
           (nvrtcProgram * program, const char* source, const char* name, int num_headers,
            const char* const* headers, const char* const* names),
           (program, source, name, num_headers, headers, names))
WEFT_NVRTC(nvrtcDestroyProgram, (nvrtcProgram * program), (program))
WEFT_NVRTC(nvrtcCompileProgram, (nvrtcProgram program, int count, const char* const* options),
           (program, count, options))
WEFT_NVRTC(nvrtcGetCUBIN, (nvrtcProgram program, char* code), (program, code))
WEFT_NVRTC(nvrtcGetCUBINSize, (nvrtcProgram program, size_t* size), (program, size))
WEFT_NVRTC(nvrtcGetProgramLog, (nvrtcProgram program, char* text), (program, text))
WEFT_NVRTC(nvrtcGetProgramLogSize, (nvrtcProgram program, size_t* size), (program, size))

}  // extern "C"
