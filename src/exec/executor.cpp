// exec/executor.cpp: places are found and calls bound once; the loop calls and counts.
#include "exec/executor.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace weft {

Arena::Arena(int64_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* at = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(at != MAP_FAILED, "cannot take {} bytes of memory: {}", bytes, std::strerror(errno));
  // Large pages: a step touches hundreds of megabytes, and small pages cost translation misses.
  ::madvise(at, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(at);
}

Arena::~Arena() {
  if (data_ && !is_given_) ::munmap(data_, static_cast<size_t>(bytes_));
}

Executor::Executor(const Plan& plan, const ArenaLayout& layout, const Arena& arena,
                   ThreadPool* pool, const Mesh& mesh)
    : plan_(plan),
      kernels_(*plan.options.kernels),
      mesh_(mesh),
      context_{pool, arena.data() + layout.workspace_offset(),
               static_cast<size_t>(layout.workspace_bytes())},
      data_(plan.graph.values.size(), nullptr),
      calls_(kNumOps, 0) {
  ensure(pool->num_threads() <= plan.options.num_threads,
         "more threads than the plan was made for");
  find_places(layout, arena);
  bind_list(plan.graph.pass, plan.pass_schedule, &pass_);
  bind_list(plan.graph.finish, plan.finish_schedule, &finish_);
}

void Executor::find_places(const ArenaLayout& layout, const Arena& arena) {
  for (size_t i = 0; i < data_.size(); ++i) {
    const Place& place = plan_.memory.places[i];
    if (place.region == Place::Region::kStep) {
      data_[i] = arena.data() + layout.step_offset() + place.offset;
    } else if (place.region == Place::Region::kPersistent) {
      data_[i] = arena.data() + layout.offset(plan_.graph.values[i].name);
    }
  }
  for (size_t i = 0; i < data_.size(); ++i) {
    const Graph::Storage storage = plan_.graph.storage_of(Ref{static_cast<int>(i)});
    std::byte* base = data_[static_cast<size_t>(storage.root.id)];
    if (storage.root.id != static_cast<int>(i) && base) data_[i] = base + storage.offset_bytes;
  }
}

void Executor::bind_list(const std::vector<Node>& nodes, const Schedule& schedule, List* list) {
  list->nodes = &nodes;
  list->schedule = &schedule;
  list->calls.reserve(nodes.size());
  for (const Node& n : nodes) list->calls.push_back(bind(n));
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!schedule.nodes[i].is_beside) continue;
    const bool last_only = nodes[i].attr.last_pass_only;
    list->beside.push_back([this, last_only, call = &list->calls[i]] {
      if (!last_only || scalars_.is_last_pass) (*call)(scalars_);
    });
  }
}

std::byte* Executor::find(const std::string& name) const {
  const auto ref = plan_.graph.find(name);
  return ref ? data_[static_cast<size_t>(ref->id)] : nullptr;
}

void Executor::run(List& list, const StepScalars& scalars) {
  scalars_ = scalars;
  lane_.begin(&list.beside);
  for (size_t i = 0; i < list.calls.size(); ++i) {
    const ScheduledNode& s = list.schedule->nodes[i];
    if (s.wait_for > 0) lane_.wait(s.wait_for);
    if (s.is_beside) {
      lane_.post();
    } else {
      list.calls[i](scalars);
    }
    const Node& node = (*list.nodes)[i];
    if (!node.attr.last_pass_only || scalars.is_last_pass) ++calls_[static_cast<size_t>(node.op)];
  }
  if (!list.beside.empty()) lane_.wait(list.schedule->num_beside);
}

void Executor::run_pass(const StepScalars& scalars) { run(pass_, scalars); }
void Executor::run_finish(const StepScalars& scalars) { run(finish_, scalars); }

}  // namespace weft
