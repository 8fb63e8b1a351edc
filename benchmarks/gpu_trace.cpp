// benchmarks/gpu_trace.cpp: a library that records every kernel that a program runs on a GPU.
//
//   CUDA_INJECTION64_PATH=build-cuda/benchmarks/libgpu_trace.so GPU_TRACE=FILE weft train ...
//
// CUDA's driver loads it. CUPTI reports begin and end of each kernel as the GPU ran it, including
// those of captured graphs, so a step is seen at its real clock rates; benchmarks/gpu_step.py makes
// a table of it. Each line of FILE.<process>: begin and end in nanoseconds, name.
#include <cupti.h>
#include <cxxabi.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace {

constexpr size_t kBufferBytes = size_t{8} << 20;
constexpr uint32_t kFlushMs = 50;  // a program may end without notice
FILE* file = nullptr;

void check(CUptiResult result, const char* what) {
  if (result == CUPTI_SUCCESS) return;
  const char* text = nullptr;
  cuptiGetResultString(result, &text);
  std::fprintf(stderr, "gpu_trace: %s: %s\n", what, text ? text : "?");
}

// As the source has it.
const std::string& plain_name(const char* name) {
  static auto& known = *new std::map<std::string, std::string>;
  std::string& plain = known[name];
  if (!plain.empty()) return plain;
  int status = 0;
  char* source = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  plain = status == 0 ? source : name;
  std::free(source);
  return plain;
}

void give_buffer(uint8_t** buffer, size_t* bytes, size_t* most_records) {
  *bytes = kBufferBytes;
  *most_records = 0;  // as many as fit
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(8, kBufferBytes));
}

void write_records(CUcontext, uint32_t, uint8_t* buffer, size_t, size_t valid_bytes) {
  CUpti_Activity* record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto* kernel = reinterpret_cast<const CUpti_ActivityKernel10*>(record);
    std::fprintf(file, "%llu %llu %s\n", static_cast<unsigned long long>(kernel->start),
                 static_cast<unsigned long long>(kernel->end), plain_name(kernel->name).c_str());
  }
  std::fflush(file);
  std::free(buffer);
}

void end_trace() {
  check(cuptiActivityFlushAll(1), "cuptiActivityFlushAll");
  std::fclose(file);
}

}  // namespace

extern "C" int InitializeInjection() {
  const char* path = std::getenv("GPU_TRACE");
  std::string name = path ? path : "gpu_trace";
  name.append(".").append(std::to_string(getpid()));
  file = std::fopen(name.c_str(), "w");
  if (!file) return 0;
  check(cuptiActivityRegisterCallbacks(give_buffer, write_records), "callbacks");
  check(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL), "kernels");
  check(cuptiActivityFlushPeriod(kFlushMs), "cuptiActivityFlushPeriod");
  std::atexit(end_trace);
  return 1;
}
