// tests/tensor/cuda_error_test.cpp: which errors of a GPU mean what.
#include "tensor/cuda_error.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"

namespace weft {
namespace {

struct Thrown {
  int exit_code;
  std::string message, hint;
};

Thrown thrown(const char* name) {
  try {
    throw_cuda_error(name, "words of CUDA", 3, "cudaEventQuery");
  } catch (const Error& e) {
    return {e.exit_code(), e.what(), e.hint()};
  }
}

TEST(CudaError, EachKindHasItsExitCode) {
  for (const char* name :
       {"cudaErrorIllegalAddress", "cudaErrorECCUncorrectable", "cudaErrorLaunchFailure",
        "cudaErrorLaunchTimeout", "cudaErrorUnknown", "cudaErrorNvlinkUncorrectable"}) {
    EXPECT_EQ(trouble_of(name), CudaTrouble::kDevice) << name;
    EXPECT_EQ(thrown(name).exit_code, 75) << name;
  }
  EXPECT_EQ(thrown("cudaErrorMemoryAllocation").exit_code, 1);
  for (const char* name :
       {"cudaErrorNoKernelImageForDevice", "cudaErrorInsufficientDriver", "cudaErrorNoDevice",
        "cudaErrorSystemDriverMismatch", "cudaErrorDevicesUnavailable"}) {
    EXPECT_EQ(thrown(name).exit_code, 2) << name;
  }
  for (const char* name : {"cudaErrorInvalidValue", "cudaErrorInvalidConfiguration",
                           "cudaErrorLaunchOutOfResources", "cudaErrorStreamCaptureIsolation"}) {
    EXPECT_EQ(thrown(name).exit_code, 70) << name;
  }
}

TEST(CudaError, NamesHostGpuAndCall) {
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const Thrown lost = thrown("cudaErrorIllegalAddress");
  EXPECT_EQ(lost.message, fmt::format("GPU 3 of {} failed in cudaEventQuery: words of CUDA "
                                      "(cudaErrorIllegalAddress)",
                                      host));
  EXPECT_NE(lost.hint.find("dmesg"), std::string::npos) << lost.hint;
}

}  // namespace
}  // namespace weft
