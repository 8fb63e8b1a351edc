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
    put<&DeviceKernels::cross_entropy_kept>(&t);
    put<&DeviceKernels::exact_sum>(&t);
    put<&DeviceKernels::norm>(&t);
    put<&DeviceKernels::adamw_list>(&t);
    put<&DeviceKernels::squares_list>(&t);
    put<&DeviceKernels::store_sum>(&t);
    put<&DeviceKernels::round_sum>(&t);
    put<&DeviceKernels::tell_leaf>(&t);
    put<&DeviceKernels::tell_target>(&t);
    put<&DeviceKernels::join_leaves>(&t);
    put<&DeviceKernels::local_targets>(&t);
    put<&DeviceKernels::take_rows>(&t);
    put<&DeviceKernels::reduce_tree>(&t);
    return t;
  }();
  return table;
}

}  // namespace

const Kernels& queued_kernels() {
  static const Kernels table = [] {
    Kernels t = emulated_kernels();
    put<&Kernels::gemm>(&t);
    put<&Kernels::embedding>(&t);
    put<&Kernels::embedding_backward>(&t);
    put<&Kernels::rmsnorm>(&t);
    put<&Kernels::rmsnorm_backward>(&t);
    put<&Kernels::rope>(&t);
    put<&Kernels::attention>(&t);
    put<&Kernels::attention_backward>(&t);
    put<&Kernels::cached_attention>(&t);
    put<&Kernels::swiglu>(&t);
    put<&Kernels::swiglu_backward>(&t);
    put<&Kernels::cross_entropy>(&t);
    put<&Kernels::softmax_stats>(&t);
    put<&Kernels::softmax_gradient>(&t);
    put<&Kernels::bias_backward>(&t);
    put<&Kernels::add>(&t);
    put<&Kernels::squares>(&t);
    put<&Kernels::adamw>(&t);
    t.device = &queued_device_kernels();
    return t;
  }();
  return table;
}

}  // namespace weft::testing
