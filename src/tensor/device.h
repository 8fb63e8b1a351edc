// tensor/device.h: where tensors lie, how bytes get there and back, and the order of work on them.
//
// On the CPU memory is the program's own and work is done when a call returns. A GPU has memory
// that the program cannot follow, and a stream: work is queued, and done in order later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace weft {

// Work that was recorded once and is queued again with one call.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void replay() = 0;
};

// A moment in the order of a device's work.
class Moment {
 public:
  virtual ~Moment() = default;
  virtual void set() = 0;   // now: after all that was queued so far
  virtual void wait() = 0;  // until it has passed; at once where it was never set
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;
  virtual bool is_host() const = 0;
  virtual void* stream() const = 0;  // for Context::stream

  // Memory of the device, zeroed; and memory of the host that both reach fast.
  virtual std::byte* take(int64_t bytes) = 0;
  virtual void give_back(std::byte* memory, int64_t bytes) = 0;
  virtual std::byte* take_shared(int64_t bytes) = 0;
  virtual void give_back_shared(std::byte* memory, int64_t bytes) = 0;

  // Whole when they return. Any thread may call them.
  virtual void write(void* to, const void* from_host, int64_t bytes) = 0;
  virtual void read(void* to_host, const void* from, int64_t bytes) = 0;
  // Queued: both ends are of this device or of its shared memory, and stay as they are until it is
  // done.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;

  // Memory that was taken here, for another process on the same GPU: what export_memory tells,
  // import_memory turns into a pointer there (in this process: the same). It stays until the device
  // is closed.
  struct Exported {
    std::byte handle[64];
    std::byte* here;
    int64_t process;
  };
  virtual Exported export_memory(std::byte* memory) = 0;
  virtual std::byte* import_memory(const Exported& exported) = 0;

  virtual void wait() = 0;  // until all that was queued is done
  virtual std::unique_ptr<Moment> make_moment() = 0;
  // What `work` queues is recorded and not done. It may be called again, later.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& work) = 0;
};

Device& host_device();

// UserError where this build, this machine or its driver has no such GPU.
std::unique_ptr<Device> open_cuda_device(int number);
// GPUs that could be opened; 0 where there are none, and then why.
int count_cuda_devices(std::string* why_none);

}  // namespace weft
