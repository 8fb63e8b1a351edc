// tensor/cuda_error.cpp: the table of CUDA's errors.
//
// An illegal address may be a fault of a kernel of ours, or of memory that went bad: it cannot be
// told apart, and in both cases the GPU's context is lost and a new process may go on. So what is
// sticky counts as a failed device.
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
    "cudaErrorDevicesUnavailable",  // another has it alone
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
                      "if it goes on, look at the driver's log (dmesg) for Xid messages");
    case CudaTrouble::kMemory:
      throw RunError(fmt::format("{} has no memory left for {}", place, why),
                     "lower train.micro_batch or data.seq_length; another program may hold memory "
                     "of this GPU: nvidia-smi shows which");
    case CudaTrouble::kSetup:
      throw UserError(fmt::format("{} cannot be used, in {}", place, why),
                      "'weft doctor' tells what this machine has; or set launch.device to cpu");
    case CudaTrouble::kOurs:
      break;
  }
  throw BugError(fmt::format("a call for {} was refused: {}", place, why));
}

}  // namespace weft
