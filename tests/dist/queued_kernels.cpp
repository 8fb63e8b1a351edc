// tests/dist/queued_kernels.cpp: every kernel of the tables behind a queue.
#include "tests/dist/queued_kernels.h"

#include "kernel/device_kernels.h"
#include "tests/fake_device.h"
#include "tests/kernel/emulated_cuda/table.h"

namespace weft::testing {
namespace {

const DeviceKernels& table_of(const DeviceKernels*) { return emulated_device_kernels(); }
const Kernels& table_of(const Kernels*) { return emulated_kernels(); }

// Queued<&Table::kernel>::call queues the emulated kernel of that place.
template <auto kKernel>
struct Queued;
template <typename Table, typename Args, void (*Table::*kKernel)(const Context&, const Args&)>
struct Queued<kKernel> {
  static void call(const Context& context, const Args& args) {
    FakeDevice::queue_work(context.stream, [context, args] {
      (table_of(static_cast<const Table*>(nullptr)).*kKernel)(context, args);
    });
  }
};

template <auto kKernel, typename Table>
void put(Table* table) {
  table->*kKernel = Queued<kKernel>::call;
}

const DeviceKernels& queued_device_kernels() {
  static const DeviceKernels table = [] {
    DeviceKernels t = emulated_device_kernels();
#define WEFT_QUEUE(name, Args) put<&DeviceKernels::name>(&t);
    WEFT_DEVICE_KERNELS(WEFT_QUEUE)
#undef WEFT_QUEUE
    return t;
  }();
  return table;
}

}  // namespace

const Kernels& queued_kernels() {
  static const Kernels table = [] {
    Kernels t = emulated_kernels();
#define WEFT_QUEUE(name, Args) put<&Kernels::name>(&t);
    WEFT_KERNELS(WEFT_QUEUE, WEFT_QUEUE)
#undef WEFT_QUEUE
    t.device = &queued_device_kernels();
    return t;
  }();
  return table;
}

}  // namespace weft::testing
