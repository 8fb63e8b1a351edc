// train/weights_load.cpp: what a rank holds, read from a checkpoint of any layout.
//
// A tensor of the type that is stored is read straight into its memory, in pieces on several
// threads. What must be converted or copied to a device goes through a buffer, a stretch at a time.
#include <algorithm>

#include "base/error.h"
#include "base/new_threads.h"
#include "graph/portion.h"
#include "model/load.h"
#include "train/weights.h"

namespace weft {
namespace {

constexpr int64_t kBufferElements = int64_t{1} << 20;  // elements of a buffer

Slice to_slice(const Portion& p, const std::string& name, Dtype dtype, void* data) {
  return {name, p.shape, dtype, p.offset, p.extent, p.begin, p.end, data};
}

bool is_same_box(const Portion& a, const Portion& b) {
  return a.offset == b.offset && a.extent == b.extent && a.shape == b.shape;
}

}  // namespace

// Threads that may call a GPU's functions are those of the pool.
template <typename Fn>
void Weights::run_reads(size_t num_tasks, const Fn& fn) const {
  if (device_->is_host()) return run_on_new_threads(kReadThreads, num_tasks, fn);
  pool_->run(static_cast<int64_t>(num_tasks),
             [&](int64_t task, int) { fn(static_cast<size_t>(task)); });
}

// A checkpoint holds only the masters of parameters that have them.
Weights::Source Weights::source_of(const Held& held) const {
  if (!held.has_master) return {&held, held.stored.name, held.dtype};
  return {&held, held.stored.name + std::string(kMaster), Dtype::kF32};
}

Weights::Source Weights::convertible_source(const CheckpointReader& reader,
                                            const Held& held) const {
  Source source = source_of(held);
  if (!reader.has(source.name)) {
    const std::string plain = source.name.ends_with(kMaster)
                                  ? source.name.substr(0, source.name.size() - kMaster.size())
                                  : source.name + std::string(kMaster);
    if (!reader.has(plain)) return source;
    source.name = plain;
  }
  const Dtype stored = reader.tensors().at(source.name).dtype;
  const auto is_float = [](Dtype d) {
    return d == Dtype::kF32 || d == Dtype::kBf16 || d == Dtype::kF16;
  };
  if (is_float(stored) && is_float(held.dtype)) source.dtype = stored;
  return source;
}

void Weights::read_in_place(const CheckpointReader& reader,
                            const std::vector<Source>& sources) const {
  std::vector<Slice> slices;
  std::vector<std::pair<size_t, ReadPiece>> pieces;  // with the slice that each is of
  for (const Source& source : sources) {
    const Held& held = *source.held;
    slices.push_back(to_slice(held.stored, source.name, source.dtype, held.data));
    for (const ReadPiece& piece : reader.pieces_of(slices.back()))
      pieces.emplace_back(slices.size() - 1, piece);
  }
  run_reads(pieces.size(),
            [&](size_t i) { reader.read(slices[pieces[i].first], pieces[i].second); });
}

void Weights::read_staged(const CheckpointReader& reader,
                          const std::vector<Source>& sources) const {
  struct Task {
    const Source* source;
    int64_t begin, end;
  };
  std::vector<Task> tasks;
  for (const Source& source : sources) {
    const Portion& p = source.held->stored;
    // Ends are multiples of kBufferElements in the box: blocks of a stored box are then read once.
    for (int64_t at = p.begin, end; at < p.end; at = end) {
      end = std::min(p.end, at / kBufferElements * kBufferElements + kBufferElements);
      tasks.push_back({&source, at, end});
    }
  }
  run_reads(tasks.size(), [&](size_t i) {
    const Task& task = tasks[i];
    const Held& held = *task.source->held;
    const Dtype from = task.source->dtype;
    const int64_t count = task.end - task.begin, size = dtype_bytes(held.dtype);
    std::vector<std::byte> stored(static_cast<size_t>(count * dtype_bytes(from)));
    Portion stretch = held.stored;
    stretch.begin = task.begin;
    stretch.end = task.end;
    reader.read(to_slice(stretch, task.source->name, from, stored.data()));
    std::byte* to = held.data + (task.begin - held.stored.begin) * size;
    if (device_->is_host()) return convert_elements(stored.data(), from, to, held.dtype, count);
    if (from == held.dtype) return device_->write(to, stored.data(), count * size);
    std::vector<std::byte> converted(static_cast<size_t>(count * size));
    convert_elements(stored.data(), from, converted.data(), held.dtype, count);
    device_->write(to, converted.data(), count * size);
  });
}

// The master of these very elements, where this rank has it: a parameter may extend beyond it.
const Weights::Held* Weights::own_master(const Held& parameter) const {
  for (const Held& master : masters_) {
    const Portion &m = master.portion, &p = parameter.portion;
    if (master.spec == parameter.spec && is_same_box(m, p) && m.begin <= p.begin && p.end <= m.end)
      return &master;
  }
  return nullptr;
}

void Weights::round_master(const Held& master, const Held& parameter) const {
  const int64_t first = parameter.portion.begin, num = portion_elements(parameter.portion);
  const int64_t size = dtype_bytes(parameter.dtype), master_size = dtype_bytes(master.dtype);
  const std::byte* from = master.data + (first - master.portion.begin) * master_size;
  pool_->run((num + kBufferElements - 1) / kBufferElements, [&](int64_t i, int) {
    const int64_t at = i * kBufferElements, count = std::min(kBufferElements, num - at);
    const std::byte* values = from + at * master_size;
    std::byte* to = parameter.data + at * size;
    if (device_->is_host())
      return convert_elements(values, master.dtype, to, parameter.dtype, count);
    std::vector<std::byte> host(static_cast<size_t>(count * master_size));
    std::vector<std::byte> rounded(static_cast<size_t>(count * size));
    device_->read(host.data(), values, count * master_size);
    convert_elements(host.data(), master.dtype, rounded.data(), parameter.dtype, count);
    device_->write(to, rounded.data(), count * size);
  });
}

bool Weights::is_loaded(const Held& held) const {
  return portion_elements(held.portion) > 0 && !(held.has_master && own_master(held));
}

std::vector<Slice> Weights::needed_slices() const {
  std::vector<Slice> needed;
  for (const std::vector<Held>* list : {&masters_, &states_, &parameters_}) {
    for (const Held& held : *list) {
      if (!is_loaded(held)) continue;
      const Source source = source_of(held);
      needed.push_back(to_slice(held.stored, source.name, source.dtype, nullptr));
    }
  }
  return needed;
}

void Weights::load(const CheckpointReader& reader, bool converts) {
  std::vector<Source> in_place, staged;
  for (const std::vector<Held>* list : {&masters_, &states_, &parameters_}) {
    for (const Held& held : *list) {
      if (!is_loaded(held)) continue;
      Source source = converts ? convertible_source(reader, held) : source_of(held);
      const bool is_direct = device_->is_host() && source.dtype == held.dtype;
      (is_direct ? in_place : staged).push_back(std::move(source));
    }
  }
  read_in_place(reader, in_place);
  read_staged(reader, staged);
  for (const Held& held : parameters_) {
    const Held* master = held.has_master ? own_master(held) : nullptr;
    if (master && portion_elements(held.portion) > 0) round_master(*master, held);
  }
}

}  // namespace weft
