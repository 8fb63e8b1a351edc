// tensor/device.h: where tensors live, how bytes get there and back, and the order of work on them.
//
// On the CPU memory is directly addressable and work is done when a call returns. A GPU has memory
// of its own, and queues: work is done later, in queue order. There are two queues, the main one
// and a side lane; an event of one can hold back the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace weft {

enum class Queue { kMain, kLane };

// Work that was captured once and is queued again with one call.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  virtual void replay() = 0;
};

// A point in a device's queue of work.
class Event {
 public:
  virtual ~Event() = default;
  virtual void set() = 0;   // now: after all that was queued so far, in the queue in use
  virtual void wait() = 0;  // until it has passed; returns at once if it was never set
  virtual void hold() = 0;  // later work in the queue in use starts after it
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  virtual bool is_host() const = 0;
  virtual void* stream() const = 0;  // of the queue in use, for Context::stream
  // Where work is queued from now on: events, copies, and users of stream().
  virtual void use(Queue queue) = 0;

  // Device memory, zeroed; and pinned host memory that both reach fast.
  virtual std::byte* allocate(int64_t bytes) = 0;
  virtual int64_t free_bytes() const { return std::numeric_limits<int64_t>::max(); }
  virtual void free(std::byte* memory, int64_t bytes) = 0;
  virtual std::byte* allocate_pinned(int64_t bytes) = 0;
  virtual void free_pinned(std::byte* memory, int64_t bytes) = 0;
  // Pins host memory that somebody else owns, until unpin; false where that is not possible: copies
  // to it are then slower. Thread-safe; seconds for some gigabytes.
  [[nodiscard]] virtual bool pin(std::byte* /*memory*/, int64_t /*bytes*/) { return false; }
  virtual void unpin(std::byte* /*memory*/) {}

  // Complete when they return. Thread-safe.
  virtual void write(void* to, const void* from_host, int64_t bytes) = 0;
  virtual void read(void* to_host, const void* from, int64_t bytes) = 0;
  // The same without waiting for queued work, which must not write what is read: beside a pass.
  // Complete after wait_aside(), on the same thread.
  virtual void read_aside(void* to_host, const void* from, int64_t bytes) = 0;
  virtual void wait_aside() {}
  // Queued: both ends are device or shared memory of this device, and must not change until it is
  // done.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;

  // Shares memory allocated here with another process on the same GPU: import_memory turns the
  // result of export_memory into a pointer there (in this process: the same one). Every import must
  // be dropped before the memory is freed.
  struct Exported {
    std::byte handle[64];
    std::byte* here;
    int64_t process;
  };
  virtual Exported export_memory(std::byte* memory) = 0;
  virtual std::byte* import_memory(const Exported& exported) = 0;
  virtual void drop_memory(const Exported& exported) = 0;

  virtual void wait() = 0;  // until all queued work is done
  // Called every few milliseconds while the host waits for the device, with the time waited so far;
  // it may throw. For work that depends on other ranks. Only on the thread that set it; null: none.
  using Watch = std::function<void(int64_t waited_ms)>;
  virtual void set_watch(Watch watch) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  // Captures what `work` queues without running it. `work` may be called again later.
  virtual std::unique_ptr<CapturedGraph> capture(const std::function<void()>& work) = 0;
};

Device& host_device();

// UserError where this build, this machine or its driver has no such GPU.
std::unique_ptr<Device> open_cuda_device(int number);
// GPUs that can be opened; where 0, also why.
int count_cuda_devices(std::string* why_none);

// What `weft doctor` reports about them.
struct CudaInfo {
  struct Gpu {
    std::string name;
    int64_t memory_bytes;
    int major, minor;  // the compute capability
  };
  std::string why_none;         // empty where there are some
  std::string driver, runtime;  // CUDA versions: supported by the driver, of this build; or empty
  std::vector<Gpu> gpus;
};
CudaInfo read_cuda_info();

}  // namespace weft
