// train/weights.cpp: walks portions of tensors as runs of the whole tensors.
#include "train/weights.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/hash.h"
#include "base/mapped_files.h"
#include "checkpoint/load.h"
#include "graph/portion.h"
#include "model/load.h"
#include "model/stored.h"

namespace weft {
namespace {

constexpr int64_t kTaskElements = 1 << 16;  // elements per task

Slice to_slice(const Portion& p, Dtype dtype, std::byte* data) {
  return {p.name, p.shape, dtype, p.offset, p.extent, p.begin, p.end, data};
}

}  // namespace

Weights::Weights(const Executor& executor, const Model& model, bool has_masters, ThreadPool* pool)
    : pool_(pool), device_(executor.device()), specs_(model.parameters()) {
  const Graph& graph = executor.plan().graph;
  for (Ref r : graph.of_kind(ValueKind::kParameter)) {
    if (graph[r].is_bucket) continue;
    parameters_.push_back(hold(executor, r, ""));
    parameters_.back().has_master = has_masters && !graph[r].frozen;
  }
  for (Ref r : graph.of_kind(ValueKind::kState)) {
    const std::string name = portion_of(graph[r]).name, suffix = name.substr(name.rfind('#'));
    (suffix == kMaster ? masters_ : states_).push_back(hold(executor, r, suffix));
  }
}

Weights::Held Weights::hold(const Executor& executor, Ref r, const std::string& suffix) const {
  const Value& v = executor.plan().graph[r];
  Held held{portion_of(v), {}, v.dtype, executor.data(r), nullptr, v.is_saved, false};
  const std::string name = held.portion.name.substr(0, held.portion.name.size() - suffix.size());
  for (const ParameterSpec& spec : specs_) {
    if (spec.name == name) held.spec = &spec;
  }
  ensure(held.spec != nullptr, held.portion.name + " is not a parameter of the model");
  held.stored = to_stored(*held.spec, held.portion);
  return held;
}

template <typename Fn>
void Weights::each_stretch(const std::vector<Held>& list, bool stored, const Fn& fn) const {
  struct Task {
    const Held* held;
    int64_t begin;
  };
  std::vector<Task> tasks;
  for (const Held& held : list) {
    for (int64_t at = held.portion.begin; at < held.portion.end; at += kTaskElements) {
      tasks.push_back({&held, at});
    }
  }
  pool_->run(static_cast<int64_t>(tasks.size()), [&](int64_t i, int) {
    const Task& task = tasks[static_cast<size_t>(i)];
    Portion stretch = stored ? task.held->stored : task.held->portion;
    stretch.begin = task.begin;
    stretch.end = std::min(task.held->portion.end, task.begin + kTaskElements);
    const int64_t size = dtype_bytes(task.held->dtype), bytes = portion_elements(stretch) * size;
    std::byte* data = task.held->data + (stretch.begin - task.held->portion.begin) * size;
    if (device_->is_host()) return fn(*task.held, stretch, data);
    std::vector<std::byte> host(static_cast<size_t>(bytes));
    fn(*task.held, stretch, host.data());
    device_->write(data, host.data(), bytes);
  });
}

void Weights::load(const HfFolder& folder) {
  for (const std::vector<Held>* list : {&parameters_, &masters_}) {
    each_stretch(*list, true, [&](const Held& held, const Portion& stretch, std::byte* to) {
      const ParameterSource source = find_parameter(folder, *held.spec);
      const int64_t size = dtype_bytes(held.dtype);
      for_each_run(stretch, [&](int64_t logical, int64_t count, int64_t local) {
        source.read(logical, count, held.dtype, to + local * size);
      });
    });
  }
  // Copied data need not stay in memory twice.
  for (const auto& file : folder.files()) file->drop_pages();
  check_mapped_files();
}

void Weights::init(uint64_t seed) {
  for (const std::vector<Held>* list : {&parameters_, &masters_}) {
    each_stretch(*list, false, [&](const Held& held, const Portion& stretch, std::byte* to) {
      constexpr int64_t kPiece = 1024;
      std::array<float, kPiece> values;
      const int64_t size = dtype_bytes(held.dtype);
      for_each_run(stretch, [&](int64_t logical, int64_t count, int64_t local) {
        for (int64_t at = 0; at < count; at += kPiece) {
          const int64_t n = std::min(kPiece, count - at);
          initial_values(*held.spec, seed, logical + at, logical + at + n, values.data());
          convert_elements(values.data(), Dtype::kF32, to + (local + at) * size, held.dtype, n);
        }
      });
    });
  }
}

void Weights::load(const LogicalModel& source) {
  each_stretch(parameters_, true, [&](const Held& held, const Portion& stretch, std::byte* to) {
    const LogicalTensor& tensor = find_parameter(source, *held.spec);
    std::vector<std::byte> piece(
        static_cast<size_t>(portion_elements(stretch) * dtype_bytes(tensor.dtype)));
    const int64_t size = dtype_bytes(held.dtype);
    for_each_run(stretch, [&](int64_t logical, int64_t count, int64_t local) {
      tensor.read(logical, logical + count, piece.data());
      convert_elements(piece.data(), tensor.dtype, to + local * size, held.dtype, count);
    });
  });
  check_mapped_files();
}

std::vector<Weights::Copy> Weights::copies() const {
  std::vector<const Held*> all;
  for (const std::vector<Held>* list : {&parameters_, &masters_, &states_}) {
    for (const Held& held : *list) {
      if (portion_elements(held.portion) > 0) all.push_back(&held);
    }
  }
  std::vector<Copy> copies(all.size());
  pool_->run(static_cast<int64_t>(all.size()), [&](int64_t i, int) {
    const Held& held = *all[static_cast<size_t>(i)];
    const Portion& p = held.portion;
    const std::string place = fmt::format("{} {} {} {} {}", p.name, to_string(p.offset),
                                          to_string(p.extent), p.begin, p.end);
    const int64_t size = portion_elements(p) * dtype_bytes(held.dtype);
    std::vector<std::byte> host(device_->is_host() ? 0 : static_cast<size_t>(size));
    if (!host.empty()) device_->read(host.data(), held.data, size);
    const std::byte* bytes = host.empty() ? held.data : host.data();
    copies[static_cast<size_t>(i)] = {p.name, hash_text(place),
                                      hash_bytes(bytes, static_cast<size_t>(size))};
  });
  return copies;
}

std::vector<Slice> Weights::checkpoint_slices() const {
  std::vector<Slice> all;
  const auto add = [&](const Held& held) {
    if (held.is_saved && portion_elements(held.portion) > 0)
      all.push_back(to_slice(held.stored, held.dtype, held.data));
  };
  for (const Held& held : parameters_) {
    if (!held.has_master) add(held);
  }
  for (const Held& held : masters_) add(held);
  for (const Held& held : states_) add(held);
  return all;
}

std::vector<Slice> Weights::weight_slices() const {
  std::vector<Slice> all;
  for (const Held& held : parameters_) {
    if (!held.has_master) all.push_back(to_slice(held.stored, held.dtype, held.data));
  }
  for (const Held& held : masters_) {
    all.push_back(to_slice(held.stored, held.dtype, held.data));
    all.back().name = stored_as(*held.spec).name;
  }
  return all;
}

}  // namespace weft
