// tests/emulated_device.h: an emulated GPU: its kernels run on this CPU, its memory is the host's.
//
// Lists run as they do on a GPU: inputs are staged, results are read back, lists are captured after
// their first run. Products and other library functions are the reference kernels'.
#pragma once

#include "tensor/device.h"
#include "tests/kernel/emulated_cuda/table.h"

namespace weft {

class EmulatedDevice : public Device {
 public:
  std::string name() const override { return "emulated"; }
  bool is_host() const override { return false; }
  void* stream() const override { return nullptr; }
  void use(Queue) override {}
  std::byte* allocate(int64_t bytes) override { return host_device().allocate(bytes); }
  void free(std::byte* memory, int64_t bytes) override { host_device().free(memory, bytes); }
  std::byte* allocate_pinned(int64_t bytes) override { return allocate(bytes); }
  void free_pinned(std::byte* memory, int64_t bytes) override { free(memory, bytes); }
  void write(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  void read(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  void read_aside(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  void copy(void* to, const void* from, int64_t bytes) override {
    host_device().copy(to, from, bytes);
  }
  Exported export_memory(std::byte* memory) override { return {{}, memory, 0}; }
  std::byte* import_memory(const Exported& exported) override { return exported.here; }
  void drop_memory(const Exported&) override {}
  void wait() override {}
  void set_watch(Watch) override {}
  std::unique_ptr<Event> make_event() override { return host_device().make_event(); }

  std::unique_ptr<CapturedGraph> capture(const std::function<void()>& work) override {
    class Kept : public CapturedGraph {
     public:
      explicit Kept(std::function<void()> work) : work_(std::move(work)) {}
      void replay() override { work_(); }

     private:
      std::function<void()> work_;
    };
    ++num_captured;
    return std::make_unique<Kept>(work);
  }

  int num_captured = 0;
};

}  // namespace weft
