// tensor/device.h: where tensors lie, how bytes get there and back, and the order of work on them.
//
// On the CPU memory is the program's own and work is done when a call returns. A GPU has memory
// that the program cannot follow, and queues: work is done later, in the order of its queue. There
// are two of them, the main one and a lane beside it; a moment of one can hold back the other.
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

// Work that was recorded once and is queued again with one call.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  virtual void replay() = 0;
};

// A moment in the order of a device's work.
class Event {
 public:
  virtual ~Event() = default;
  virtual void set() = 0;   // now: after all that was queued so far, in the queue in use
  virtual void wait() = 0;  // until it has passed; at once where it was never set
  virtual void hold() = 0;  // what is queued from now on, in the queue in use, starts after it
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  virtual bool is_host() const = 0;
  virtual void* stream() const = 0;  // of the queue in use, for Context::stream
  // Where work is queued from now on: moments, copies, and what asks for stream().
  virtual void use(Queue queue) = 0;

  // Memory of the device, zeroed; and memory of the host that both reach fast.
  virtual std::byte* allocate(int64_t bytes) = 0;
  virtual int64_t free_bytes() const { return std::numeric_limits<int64_t>::max(); }
  virtual void free(std::byte* memory, int64_t bytes) = 0;
  virtual std::byte* allocate_pinned(int64_t bytes) = 0;
  virtual void free_pinned(std::byte* memory, int64_t bytes) = 0;

  // Whole when they return. Any thread may call them.
  virtual void write(void* to, const void* from_host, int64_t bytes) = 0;
  virtual void read(void* to_host, const void* from, int64_t bytes) = 0;
  // Queued: both ends are of this device or of its shared memory, and stay as they are until it is
  // done.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;

  // Memory that was taken here, for another process on the same GPU: what export_memory tells,
  // import_memory turns into a pointer there (in this process: the same). Each import is dropped
  // again, and all are before the memory is given back: after that nobody may reach it.
  struct Exported {
    std::byte handle[64];
    std::byte* here;
    int64_t process;
  };
  virtual Exported export_memory(std::byte* memory) = 0;
  virtual std::byte* import_memory(const Exported& exported) = 0;
  virtual void drop_memory(const Exported& exported) = 0;

  virtual void wait() = 0;  // until all that was queued is done
  // While the host waits for the device, whatever for, it calls this every few milliseconds with
  // the time it has waited; it may throw. For work that waits for other ranks. Only on the thread
  // that set it; null: none.
  using Watch = std::function<void(int64_t waited_ms)>;
  virtual void set_watch(Watch watch) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  // What `work` queues is recorded and not done. It may be called again, later.
  virtual std::unique_ptr<CapturedGraph> capture(const std::function<void()>& work) = 0;
};

Device& host_device();

// UserError where this build, this machine or its driver has no such GPU.
std::unique_ptr<Device> open_cuda_device(int number);
// GPUs that could be opened; 0 where there are none, and then why.
int count_cuda_devices(std::string* why_none);

// What `weft doctor` tells of them.
struct CudaInfo {
  struct Gpu {
    std::string name;
    int64_t memory_bytes;
    int major, minor;  // the compute capability
  };
  std::string why_none;         // empty where there are some
  std::string driver, runtime;  // CUDA versions: that the driver serves, of this build; or empty
  std::vector<Gpu> gpus;
};
CudaInfo read_cuda_info();

}  // namespace weft
