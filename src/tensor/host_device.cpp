// tensor/host_device.cpp: the CPU as a device: memory from the kernel, work done at once.
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "tensor/device.h"

namespace weft {
namespace {

RunError lacking(int64_t bytes) {
  constexpr double kGib = 1024.0 * 1024 * 1024;
  return RunError(fmt::format("cannot allocate {:.1f} GiB of memory: {}",
                              static_cast<double>(bytes) / kGib, std::strerror(errno)),
                  "`weft plan RUN` shows how much a run needs, `weft plan RUN --fit 16GiB` which "
                  "layouts fit; a limit (ulimit -v) may be set");
}

class HostEvent : public Event {
 public:
  void set() override {}
  void wait() override {}
  void hold() override {}
};

class HostDevice : public Device {
 public:
  std::string name() const override { return "cpu"; }
  bool is_host() const override { return true; }
  void* stream() const override { return nullptr; }
  void use(Queue) override {}

  std::byte* allocate(int64_t bytes) override {
    if (bytes == 0) return nullptr;
    void* at = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw lacking(bytes);
    // Large pages: a step touches hundreds of megabytes, and small pages cost translation misses.
    ::madvise(at, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    return static_cast<std::byte*>(at);
  }
  void free(std::byte* memory, int64_t bytes) override {
    if (memory) ::munmap(memory, static_cast<size_t>(bytes));
  }
  std::byte* allocate_pinned(int64_t bytes) override { return allocate(bytes); }
  void free_pinned(std::byte* memory, int64_t bytes) override { free(memory, bytes); }

  void write(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  void read(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  void read_aside(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  void copy(void* to, const void* from, int64_t bytes) override {
    if (to != from && bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  Exported export_memory(std::byte*) override { throw BugError("the CPU exports no memory"); }
  void drop_memory(const Exported&) override {}
  std::byte* import_memory(const Exported&) override {
    throw BugError("the CPU imports no memory");
  }

  void wait() override {}
  void set_watch(Watch) override {}
  std::unique_ptr<Event> make_event() override { return std::make_unique<HostEvent>(); }
  std::unique_ptr<CapturedGraph> capture(const std::function<void()>&) override {
    throw BugError("the CPU captures no graphs");
  }
};

}  // namespace

Device& host_device() {
  static HostDevice device;
  return device;
}

}  // namespace weft
