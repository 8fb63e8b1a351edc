// tensor/cuda_error.cpp: a table of CUDA errors.
//
// An illegal address may be a bug in our kernel or bad memory: the two cannot be distinguished, and
// in both cases the GPU's context is lost and a new process may continue. So sticky errors count as
// a failed device.
#include "tensor/cuda_error.h"

#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace weft {
namespace {

constexpr std::string_view kDevice[] = {
    "cudaErrorAssert",
    "cudaErrorContained",
    "cudaErrorContextIsDestroyed",
    "cudaErrorDeviceUninitialized",
    "cudaErrorECCUncorrectable",
    "cudaErrorExternalDevice",
    "cudaErrorHardwareStackError",
    "cudaErrorIllegalAddress",
    "cudaErrorIllegalInstruction",
    "cudaErrorInvalidAddressSpace",
    "cudaErrorInvalidPc",
    "cudaErrorLaunchFailure",
    "cudaErrorLaunchTimeout",
    "cudaErrorMisalignedAddress",
    "cudaErrorMpsConnectionFailed",
    "cudaErrorMpsRpcFailure",
    "cudaErrorNvlinkUncorrectable",
    "cudaErrorOperatingSystem",
    "cudaErrorSystemNotReady",
    "cudaErrorTensorMemoryLeak",
    "cudaErrorTimeout",
    "cudaErrorUnknown",
};
constexpr std::string_view kSetup[] = {
    "cudaErrorCompatNotSupportedOnDevice",
    "cudaErrorDevicesUnavailable",  // another process has exclusive use
    "cudaErrorInitializationError",
    "cudaErrorInsufficientDriver",
    "cudaErrorInvalidDevice",
    "cudaErrorInvalidKernelImage",
    "cudaErrorNoDevice",
    "cudaErrorNoKernelImageForDevice",
    "cudaErrorStubLibrary",
    "cudaErrorSystemDriverMismatch",
    "cudaErrorUnsupportedPtxVersion",
};

bool is_in(const std::string_view* begin, const std::string_view* end, std::string_view name) {
  return std::find(begin, end, name) != end;
}

}  // namespace

CudaTrouble trouble_of(std::string_view name) {
  if (is_in(std::begin(kDevice), std::end(kDevice), name)) return CudaTrouble::kDevice;
  if (is_in(std::begin(kSetup), std::end(kSetup), name)) return CudaTrouble::kSetup;
  return name == "cudaErrorMemoryAllocation" ? CudaTrouble::kMemory : CudaTrouble::kOurs;
}

std::string name_gpu(int gpu) {
  char host[256] = "this host";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("GPU {} of {}", gpu, host);
}

void throw_cuda_error(std::string_view name, std::string_view text, int gpu,
                      const std::string& what) {
  const std::string place = name_gpu(gpu), why = fmt::format("{}: {} ({})", what, text, name);
  switch (trouble_of(name)) {
    case CudaTrouble::kDevice:
      throw PeerError(fmt::format("{} failed in {}", place, why),
                      "if this persists, check the driver's log (dmesg) for Xid messages");
    case CudaTrouble::kMemory:
      throw RunError(fmt::format("{} is out of memory in {}", place, why),
                     "lower train.micro_batch or data.seq_length; another program may use memory "
                     "of this GPU: nvidia-smi shows which");
    case CudaTrouble::kSetup:
      throw UserError(fmt::format("{} cannot be used, in {}", place, why),
                      "`weft doctor` shows what this machine has; or set launch.device to cpu");
    case CudaTrouble::kOurs:
      break;
  }
  throw BugError(fmt::format("an invalid call for {}: {}", place, why));
}

}  // namespace weft
