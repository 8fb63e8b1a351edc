// tensor/cuda/device.cpp: one GPU: memory, a stream, copies, events, graphs.
#include "tensor/device.h"

#include <cuda_runtime.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "base/error.h"
#include "tensor/cuda/check.h"

namespace weft {
namespace cuda {

void fail(cudaError_t error, const char* what) {
  char host[256] = "this host";
  ::gethostname(host, sizeof host - 1);
  int device = 0;
  cudaGetDevice(&device);
  throw PeerError(fmt::format("GPU {} of {} failed in {}: {} ({})", device, host, what,
                              cudaGetErrorString(error), cudaGetErrorName(error)),
                  "if it goes on, look at the driver's log (dmesg) for Xid messages");
}

}  // namespace cuda

namespace {

using cuda::check;

class CudaRecording : public Recording {
 public:
  CudaRecording(cudaGraphExec_t graph, cudaStream_t stream) : graph_(graph), stream_(stream) {}
  ~CudaRecording() override { cudaGraphExecDestroy(graph_); }
  void replay() override { check(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t graph_;
  cudaStream_t stream_;
};

class CudaMoment : public Moment {
 public:
  explicit CudaMoment(cudaStream_t stream) : stream_(stream) {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
  }
  ~CudaMoment() override { cudaEventDestroy(event_); }
  void set() override { check(cudaEventRecord(event_, stream_), "cudaEventRecord"); }
  void wait() override { check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

 private:
  cudaStream_t stream_;
  cudaEvent_t event_ = nullptr;
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int number) : number_(number) {
    check(cudaSetDevice(number), "cudaSetDevice");
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, number), "cudaGetDeviceProperties");
    name_ = properties.name;
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaStreamCreateWithFlags(&copies_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~CudaDevice() override {
    for (const auto& [handle, memory] : imported_) cudaIpcCloseMemHandle(memory);
    cudaStreamDestroy(copies_);
    cudaStreamDestroy(stream_);
  }

  std::string name() const override { return name_; }
  bool is_host() const override { return false; }
  void* stream() const override { return stream_; }

  std::byte* take(int64_t bytes) override {
    if (bytes == 0) return nullptr;
    void* at = nullptr;
    const cudaError_t error = cudaMalloc(&at, static_cast<size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) {
      size_t available = 0, all = 0;
      cudaGetLastError();
      cudaMemGetInfo(&available, &all);
      throw UserError(fmt::format("{} bytes of GPU memory are wanted, {} of {} are free", bytes,
                                  available, all),
                      "another program may hold memory of this GPU: nvidia-smi shows which");
    }
    check(error, "cudaMalloc");
    check(cudaMemsetAsync(at, 0, static_cast<size_t>(bytes), stream_), "cudaMemset");
    check(cudaStreamSynchronize(stream_), "cudaMemset");
    return static_cast<std::byte*>(at);
  }
  void give_back(std::byte* memory, int64_t) override { cudaFree(memory); }

  std::byte* take_shared(int64_t bytes) override {
    void* at = nullptr;
    if (bytes > 0) {
      check(cudaHostAlloc(&at, static_cast<size_t>(bytes), cudaHostAllocDefault), "cudaHostAlloc");
    }
    return static_cast<std::byte*>(at);
  }
  void give_back_shared(std::byte* memory, int64_t) override { cudaFreeHost(memory); }

  // Threads that did not open the device choose it first: which one is current is a thread's own.
  void write(void* to, const void* from, int64_t bytes) override {
    move(to, from, bytes, cudaMemcpyHostToDevice);
  }
  void read(void* to, const void* from, int64_t bytes) override {
    check(cudaSetDevice(number_), "cudaSetDevice");
    check(cudaStreamSynchronize(stream_), "work before a read");
    move(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void copy(void* to, const void* from, int64_t bytes) override {
    if (to == from || bytes == 0) return;
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault, stream_),
          "cudaMemcpyAsync");
  }

  Exported export_memory(std::byte* memory) override {
    Exported exported{{}, memory, ::getpid()};
    cudaIpcMemHandle_t handle;
    static_assert(sizeof handle == sizeof exported.handle);
    check(cudaIpcGetMemHandle(&handle, memory), "cudaIpcGetMemHandle");
    std::memcpy(exported.handle, &handle, sizeof handle);
    return exported;
  }
  std::byte* import_memory(const Exported& exported) override {
    if (exported.process == ::getpid()) return exported.here;
    const std::string key(reinterpret_cast<const char*>(exported.handle), sizeof exported.handle);
    void*& memory = imported_[key];
    if (!memory) {
      cudaIpcMemHandle_t handle;
      std::memcpy(&handle, exported.handle, sizeof handle);
      check(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess),
            "cudaIpcOpenMemHandle");
    }
    return static_cast<std::byte*>(memory);
  }

  void wait() override { check(cudaStreamSynchronize(stream_), "work of the stream"); }
  std::unique_ptr<Moment> make_moment() override { return std::make_unique<CudaMoment>(stream_); }

  std::unique_ptr<Recording> record(const std::function<void()>& work) override {
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "BeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      work();
    } catch (...) {
      cudaStreamEndCapture(stream_, &graph);
      if (graph) cudaGraphDestroy(graph);
      throw;
    }
    check(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    cudaGraphExec_t ready = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&ready, graph, 0);
    cudaGraphDestroy(graph);
    check(error, "cudaGraphInstantiate");
    return std::make_unique<CudaRecording>(ready, stream_);
  }

 private:
  void move(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind) {
    if (bytes == 0) return;
    check(cudaSetDevice(number_), "cudaSetDevice");
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, copies_), "cudaMemcpy");
    check(cudaStreamSynchronize(copies_), "cudaMemcpy");
  }

  int number_;
  std::string name_;
  cudaStream_t stream_ = nullptr, copies_ = nullptr;
  std::map<std::string, void*> imported_;  // by handle: one process opens a handle once
};

}  // namespace

int count_cuda_devices(std::string* why_none) {
  int driver = 0, count = 0;
  cudaDriverGetVersion(&driver);
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count > 0) return count;
  if (driver == 0) {
    *why_none = "no NVIDIA driver is loaded";
  } else if (error == cudaErrorInsufficientDriver) {
    *why_none =
        fmt::format("the driver serves CUDA {}.{}, this weft was built with {}.{}", driver / 1000,
                    driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  } else {
    *why_none = error == cudaSuccess || error == cudaErrorNoDevice
                    ? "the driver shows no GPU (is CUDA_VISIBLE_DEVICES set?)"
                    : cudaGetErrorString(error);
  }
  return 0;
}

std::unique_ptr<Device> open_cuda_device(int number) {
  std::string why;
  const int count = count_cuda_devices(&why);
  if (count == 0) throw UserError("no GPU can be used: " + why, "set launch.device to cpu");
  if (number >= count) {
    throw UserError(fmt::format("GPU {} is wanted, this machine has {}", number, count),
                    "lower dp or tp, or start more nodes");
  }
  return std::make_unique<CudaDevice>(number);
}

}  // namespace weft
