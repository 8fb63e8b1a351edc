// train/faults.cpp: what each fault does.
#include "train/faults.h"

#include <algorithm>

#include "base/error.h"
#include "graph/portion.h"
#include "train/gradients.h"
#include "train/host_slices.h"

namespace weft {
namespace {

// The lowest bit of the mantissa of the first element.
void flip_bit(Device* device, void* data, Dtype dtype) {
  ensure(dtype == Dtype::kF32 || dtype_bytes(dtype) == 2,
         "a fault in a tensor of an unsupported type");
  unsigned char first = 0;  // little endian on all machines that we build for
  device->read(&first, data, 1);
  first ^= 1;
  device->write(data, &first, 1);
}

void swap_rows(Batch* batch, int64_t a, int64_t b) {
  for (BatchTensor& tensor : batch->tensors)
    std::swap_ranges(tensor.row(a), tensor.row(a + 1), tensor.row(b));
}

}  // namespace

void fault_before_passes(const Fault& fault, int64_t step, const RunConfig& config,
                         const Ranks& ranks, Batch* batch) {
  const Layout& layout = ranks.layout();
  if (fault.kind != Fault::Kind::kSwap || step != fault.step) return;
  if (layout.dp_rank(ranks.rank()) != layout.dp_rank(fault.rank)) return;
  const int64_t rows = config.micro_batch();
  for (int64_t row = 0; row < rows; ++row) swap_rows(batch, rows + row, 2 * rows + row);
}

void fault_before_update(const Fault& fault, int64_t step, const Engine& engine,
                         const Ranks& ranks) {
  if (step != fault.step ||
      (fault.kind != Fault::Kind::kFlip && fault.kind != Fault::Kind::kDouble))
    return;
  if (fault.kind == Fault::Kind::kFlip && ranks.rank() != fault.rank) return;
  Device* device = engine.executor().device();
  std::string doubled;
  for (const HeldGradient& g : held_gradients(engine.executor(), ranks.layout())) {
    const std::string name = g.slice.name.substr(0, g.slice.name.size() - 5);  // without #grad
    if (!fault.is_wanted(name)) continue;
    if (fault.kind == Fault::Kind::kFlip) {
      if (fault.tensor.empty() && !g.is_owned) continue;
      return flip_bit(device, g.slice.data, g.slice.dtype);
    }
    if (!is_replicated_vector(g.slice) || !(doubled.empty() || doubled == name)) continue;
    doubled = name;
    const HostSlices held({g.slice}, device);
    const Slice& s = held.slices()[0];
    const int64_t n = s.flat_end - s.flat_begin;
    for (int64_t i = 0; i < n; ++i) {
      store_element(s.data, s.dtype, i, 2 * load_element(s.data, s.dtype, i));
    }
    device->write(g.slice.data, s.data, n * dtype_bytes(s.dtype));
  }
  require(fault.kind == Fault::Kind::kDouble, "{}={}: rank {} holds no gradient of it",
          kFaultVariable, fault.words, fault.rank);
}

void fault_after_update(const Fault& fault, int64_t step, const Engine& engine,
                        const Ranks& ranks) {
  if (fault.kind != Fault::Kind::kCopy || step != fault.step || ranks.rank() != fault.rank) return;
  const bool is_on_data_axis = ranks.layout().dp > 1 && ranks.layout().shard != Shard::kZero3;
  const Graph& graph = engine.executor().plan().graph;
  for (Ref r : graph.of_kind(ValueKind::kParameter)) {
    const Value& v = graph[r];
    if (v.is_bucket) continue;
    const Portion p = portion_of(v);
    const bool has_copies = is_on_data_axis || p.extent == p.shape || v.copies > 1;
    if (!has_copies || portion_elements(p) == 0 || !fault.is_wanted(p.name)) continue;
    return flip_bit(engine.executor().device(), engine.executor().data(r), v.dtype);
  }
  require(false, "{}={}: rank {} holds no replicated part of it", kFaultVariable, fault.words,
          fault.rank);
}

}  // namespace weft
