// tests/dist/queued_kernels.cpp: every kernel of the tables behind a queue.
#include "tests/dist/queued_kernels.h"

#include "kernel/cpu/level.h"
#include "kernel/device_kernels.h"
#include "tests/fake_device.h"
#include "tests/kernel/emulated_cuda/table.h"

namespace weft::testing {
namespace {

// Queued<kTable, &Table::kernel>::call queues the kernel of that place in the table.
template <auto kTable, auto kKernel>
struct Queued;
template <auto kTable, typename Table, typename Args,
          void (*Table::*kKernel)(const Context&, const Args&)>
struct Queued<kTable, kKernel> {
  static void call(const Context& context, const Args& args) {
    FakeDevice::queue_work(context.stream, [context, args] {
      thread_local ThreadPool pool(1);  // the rank's is gone where it has died
      Context here = context;
      here.pool = &pool;
      (kTable().*kKernel)(here, args);
    });
  }
};

template <auto kTable, auto kKernel, typename Table>
void put(Table* table) {
  table->*kKernel = Queued<kTable, kKernel>::call;
}

const DeviceKernels& queued_device_kernels() {
  static const DeviceKernels table = [] {
    DeviceKernels t = emulated_device_kernels();
#define WEFT_QUEUE(name, Args) put<&emulated_device_kernels, &DeviceKernels::name>(&t);
    WEFT_DEVICE_KERNELS(WEFT_QUEUE)
#undef WEFT_QUEUE
    return t;
  }();
  return table;
}

// The kernels of a table, queued.
template <auto kTable>
Kernels queued() {
  Kernels t = kTable();
#define WEFT_QUEUE(name, Args) put<kTable, &Kernels::name>(&t);
  WEFT_KERNELS(WEFT_QUEUE, WEFT_QUEUE)
#undef WEFT_QUEUE
  t.device = &queued_device_kernels();
  return t;
}

}  // namespace

const Kernels& queued_kernels() {
  static const Kernels table = queued<&emulated_kernels>();
  return table;
}

const Kernels& queued_cpu_kernels() {
  static const Kernels table = [] {
    Kernels t = queued<&cpu_kernels>();
    t.name = emulated_kernels().name;
    return t;
  }();
  return table;
}

}  // namespace weft::testing
