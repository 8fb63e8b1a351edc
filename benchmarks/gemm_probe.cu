// benchmarks/gemm_probe.cu: what cuBLASLt does on this GPU: bits of its algorithms, and their
// speed.
//
//   nvcc -std=c++20 -O2 -arch=sm_90 -o gemm_probe benchmarks/gemm_probe.cu benchmarks/gemm_bits.cu
//     benchmarks/gemm_speed.cu -lcublasLt
//   gemm_probe bits | speed | all
#include <cstring>

#include "gemm_probe.h"

namespace probe {
namespace {

__global__ void fill_kernel(void* to, bool is_float, int64_t n, uint64_t seed) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
       i += stride) {
    uint64_t z = seed + static_cast<uint64_t>(i) * 0x9e3779b97f4a7c15u;  // splitmix64
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    const float v = static_cast<float>(static_cast<int32_t>(z >> 33) - (1 << 30)) * 0x1p-30f;
    if (is_float) {
      static_cast<float*>(to)[i] = v;
    } else {
      static_cast<uint16_t*>(to)[i] = static_cast<uint16_t>(__float_as_uint(v) >> 16);
    }
  }
}

}  // namespace

void fill_random(std::byte* to, cudaDataType_t type, int64_t bytes, uint64_t seed) {
  fill_kernel<<<2048, 256>>>(to, type == CUDA_R_32F, bytes / size_of(type), seed);
  PROBE_CHECK(cudaGetLastError());
}

}  // namespace probe

int main(int argc, char** argv) {
  const char* what = argc > 1 ? argv[1] : "all";
  cudaDeviceProp device;
  PROBE_CHECK(cudaGetDeviceProperties(&device, 0));
  std::printf("%s, compute %d.%d, cublasLt %zu\n", device.name, device.major, device.minor,
              cublasLtGetVersion());
  const probe::Lt lt;
  const bool all = std::strcmp(what, "all") == 0;
  if (all || std::strcmp(what, "bits") == 0) probe::probe_bits(lt);
  if (all || std::strcmp(what, "speed") == 0) probe::probe_speed(lt);
  return 0;
}
