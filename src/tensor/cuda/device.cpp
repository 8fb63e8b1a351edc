// tensor/cuda/device.cpp: one GPU: memory, a stream, copies, events, graphs.
#include "tensor/device.h"

#include <cuda_runtime.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "base/error.h"
#include "tensor/cuda/check.h"
#include "tensor/cuda/streams.h"
#include "tensor/cuda_error.h"

namespace weft {
namespace cuda {

namespace {

// The calling thread's device; known even after the runtime lost it.
int current_gpu() {
  int gpu = 0;
  cudaGetDevice(&gpu);
  return gpu;
}

}  // namespace

void fail(cudaError_t error, const char* what) {
  throw_cuda_error(cudaGetErrorName(error), cudaGetErrorString(error), current_gpu(), what);
}

// Libraries may link their own runtime: a failure in theirs shows up in this one's next call.
void fail_if_lost(const std::string& what) {
  size_t available = 0, all = 0;
  for (const cudaError_t error : {cudaPeekAtLastError(), cudaMemGetInfo(&available, &all)}) {
    if (trouble_of(cudaGetErrorName(error)) == CudaTrouble::kDevice) fail(error, what.c_str());
  }
}

void fail_device(const std::string& what) {
  fail_if_lost(what);
  throw PeerError(fmt::format("{} failed in {}", name_gpu(current_gpu()), what),
                  "if this persists, check the driver's log (dmesg) for Xid messages");
}

}  // namespace cuda

namespace {

using cuda::check;
using cuda::Streams;

class CudaCapturedGraph : public CapturedGraph {
 public:
  CudaCapturedGraph(cudaGraphExec_t graph, cudaStream_t stream) : graph_(graph), stream_(stream) {}
  ~CudaCapturedGraph() override { cudaGraphExecDestroy(graph_); }
  void replay() override { check(cudaGraphLaunch(graph_, stream_), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t graph_;
  cudaStream_t stream_;
};

class CudaEvent : public Event {
 public:
  explicit CudaEvent(const Streams* streams) : streams_(streams) {
    check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
  }
  ~CudaEvent() override { cudaEventDestroy(event_); }
  void set() override { check(cudaEventRecord(event_, streams_->in_use()), "cudaEventRecord"); }
  void wait() override { streams_->wait_for(event_, "work before an event"); }
  void hold() override {
    check(cudaStreamWaitEvent(streams_->in_use(), event_, 0), "cudaStreamWaitEvent");
  }

 private:
  const Streams* streams_;
  cudaEvent_t event_ = nullptr;
};

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int number) : number_(number) {
    check(cudaSetDevice(number), "cudaSetDevice");
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, number), "cudaGetDeviceProperties");
    name_ = properties.name;
    streams_ = std::make_unique<Streams>();
    for (cudaStream_t* stream : {&copies_, &aside_})
      check(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), "cudaStreamCreate");
    // A host that waits for this one sleeps: copies of the state take long, and training needs the
    // cores.
    check(cudaEventCreateWithFlags(&aside_done_, cudaEventBlockingSync | cudaEventDisableTiming),
          "cudaEventCreate");
  }
  ~CudaDevice() override {
    for (const auto& [handle, open] : imported_) cudaIpcCloseMemHandle(open.memory);
    cudaEventDestroy(aside_done_);
    cudaStreamDestroy(copies_);
    cudaStreamDestroy(aside_);
  }

  std::string name() const override { return name_; }
  bool is_host() const override { return false; }
  void* stream() const override { return streams_->in_use(); }
  void use(Queue queue) override { streams_->use(queue); }

  std::byte* allocate(int64_t bytes) override {
    if (bytes == 0) return nullptr;
    void* at = nullptr;
    const cudaError_t error = cudaMalloc(&at, static_cast<size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) {
      size_t available = 0, all = 0;
      cudaGetLastError();
      cudaMemGetInfo(&available, &all);
      throw UserError(fmt::format("cannot allocate {} bytes of GPU memory: {} of {} are free",
                                  bytes, available, all),
                      "another program may use memory of this GPU: nvidia-smi shows which");
    }
    check(error, "cudaMalloc");
    check(cudaMemsetAsync(at, 0, static_cast<size_t>(bytes), copies_), "cudaMemset");
    check(cudaStreamSynchronize(copies_), "cudaMemset");
    return static_cast<std::byte*>(at);
  }
  void free(std::byte* memory, int64_t) override { cudaFree(memory); }
  int64_t free_bytes() const override {
    size_t available = 0, all = 0;
    check(cudaMemGetInfo(&available, &all), "cudaMemGetInfo");
    return static_cast<int64_t>(available);
  }

  // Threads that did not open the device must select it first, here and below: the current device
  // is per thread, and the first call on another one opens a context there.
  std::byte* allocate_pinned(int64_t bytes) override {
    void* at = nullptr;
    if (bytes > 0) {
      check(cudaSetDevice(number_), "cudaSetDevice");
      check(cudaHostAlloc(&at, static_cast<size_t>(bytes), cudaHostAllocDefault), "cudaHostAlloc");
    }
    return static_cast<std::byte*>(at);
  }
  void free_pinned(std::byte* memory, int64_t) override {
    if (cudaSetDevice(number_) == cudaSuccess) cudaFreeHost(memory);
  }
  bool pin(std::byte* memory, int64_t bytes) override {
    check(cudaSetDevice(number_), "cudaSetDevice");
    const cudaError_t error =
        cudaHostRegister(memory, static_cast<size_t>(bytes), cudaHostRegisterDefault);
    if (error == cudaSuccess) return true;
    cudaGetLastError();  // else the next kernel would report it
    if (trouble_of(cudaGetErrorName(error)) == CudaTrouble::kDevice) check(error, "a pinning");
    return false;
  }
  void unpin(std::byte* memory) override {
    if (cudaSetDevice(number_) == cudaSuccess) cudaHostUnregister(memory);
  }

  void write(void* to, const void* from, int64_t bytes) override {
    move(to, from, bytes, cudaMemcpyHostToDevice, copies_);
  }
  void read(void* to, const void* from, int64_t bytes) override {
    check(cudaSetDevice(number_), "cudaSetDevice");
    streams_->wait_for(Queue::kMain, "work before a read");
    move(to, from, bytes, cudaMemcpyDeviceToHost, copies_);
  }
  void read_aside(void* to, const void* from, int64_t bytes) override {
    if (bytes == 0) return;
    check(cudaSetDevice(number_), "cudaSetDevice");
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, aside_),
          "a copy of the state");
  }
  void wait_aside() override {
    check(cudaSetDevice(number_), "cudaSetDevice");
    check(cudaEventRecord(aside_done_, aside_), "cudaEventRecord");
    check(cudaEventSynchronize(aside_done_), "a copy of the state");
  }
  void copy(void* to, const void* from, int64_t bytes) override {
    if (to == from || bytes == 0) return;
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDefault,
                          streams_->in_use()),
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
    Imported& open = imported_[key_of(exported)];
    if (!open.memory) {
      cudaIpcMemHandle_t handle;
      std::memcpy(&handle, exported.handle, sizeof handle);
      check(cudaIpcOpenMemHandle(&open.memory, handle, cudaIpcMemLazyEnablePeerAccess),
            "cudaIpcOpenMemHandle");
    }
    ++open.uses;
    return static_cast<std::byte*>(open.memory);
  }
  void drop_memory(const Exported& exported) override {
    const auto open = imported_.find(key_of(exported));
    if (open == imported_.end() || --open->second.uses > 0) return;
    cudaIpcCloseMemHandle(open->second.memory);
    imported_.erase(open);
  }

  void wait() override {
    streams_->wait_for(Queue::kMain, "work on the stream");
    streams_->wait_for(Queue::kLane, "work on the lane");
  }
  void set_watch(Watch watch) override { streams_->set_watch(std::move(watch)); }
  std::unique_ptr<Event> make_event() override {
    return std::make_unique<CudaEvent>(streams_.get());
  }

  // Work queued on the lane meanwhile, and joined again, becomes part of the captured graph.
  std::unique_ptr<CapturedGraph> capture(const std::function<void()>& work) override {
    cudaStream_t stream = streams_->of(Queue::kMain);
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "BeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      work();
    } catch (...) {
      cudaStreamEndCapture(stream, &graph);
      if (graph) cudaGraphDestroy(graph);
      cudaGetLastError();  // an abandoned capture is no error of what comes after it
      throw;
    }
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    cudaGraphExec_t ready = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&ready, graph, 0);
    cudaGraphDestroy(graph);
    check(error, "cudaGraphInstantiate");
    return std::make_unique<CudaCapturedGraph>(ready, stream);
  }

 private:
  void move(void* to, const void* from, int64_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    if (bytes == 0) return;
    check(cudaSetDevice(number_), "cudaSetDevice");
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, stream), "cudaMemcpy");
    check(cudaStreamSynchronize(stream), "cudaMemcpy");
  }

  struct Imported {
    void* memory = nullptr;
    int uses = 0;
  };
  static std::string key_of(const Exported& exported) {
    return {reinterpret_cast<const char*>(exported.handle), sizeof exported.handle};
  }

  int number_;
  std::string name_;
  std::unique_ptr<Streams> streams_;
  cudaStream_t copies_ = nullptr, aside_ = nullptr;  // the second: read_aside's
  cudaEvent_t aside_done_ = nullptr;
  std::map<std::string, Imported> imported_;  // by handle: a process may open a handle only once
};

constexpr int kOldest = 75;  // compute capability, as cmake/cuda.cmake builds

}  // namespace

std::unique_ptr<Device> open_cuda_device(int number) {
  std::string why;
  const int count = count_cuda_devices(&why);
  if (count == 0)
    throw UserError("no GPU can be used: " + why,
                    "set launch.device to cpu; `weft doctor` shows what is missing");
  if (number >= count) {
    throw UserError(fmt::format("GPU {} was requested, but this machine has {}", number, count),
                    "lower dp or tp, or start more nodes");
  }
  const CudaInfo info = read_cuda_info();
  const CudaInfo::Gpu& gpu = info.gpus.at(static_cast<size_t>(number));
  if (gpu.major * 10 + gpu.minor < kOldest) {
    throw UserError(fmt::format("{} has compute capability {}.{}; weft supports {}.{} and newer",
                                gpu.name, gpu.major, gpu.minor, kOldest / 10, kOldest % 10),
                    "set launch.device to cpu");
  }
  return std::make_unique<CudaDevice>(number);
}

}  // namespace weft
