// exec/executor.cpp: resolves places and binds calls once; the loop calls and counts.
#include "exec/executor.h"

#include <algorithm>

#include "base/environment.h"
#include "base/error.h"
#include "base/stop.h"
#include "exec/device_finish.h"
#include "exec/device_lane.h"
#include "exec/op_binding.h"

namespace weft {
namespace {

// A decoder has two of them per layer with tensor parallelism, one with ZeRO 3.
constexpr int kCollectivesPerQuestion = 2;

}  // namespace

Executor::Executor(const Plan& plan, const ArenaLayout& layout, const Arena& arena,
                   ThreadPool* pool, const Mesh& mesh)
    : plan_(plan),
      kernels_(*plan.options.kernels),
      mesh_(mesh),
      device_(arena.device()),
      overlaps_(environment_choice("WEFT_OVERLAP", {"on", "off"}) != "off"),
      plain_{pool, nullptr, 0, device_->stream()},
      async_context_{nullptr, nullptr, 0, plain_.stream},
      data_(plan.graph.values.size(), nullptr) {
  ensure(pool->num_threads() <= plan.options.num_threads,
         "more threads than the plan was made for");
  find_places(layout, arena);
  find_contexts(layout, arena);
  if (kernels_.device) prepare_device(arena.data() + layout.table_offset());
  bind_list(plan.graph.pass, plan.pass_schedule, contexts_.data(), &pass_);
  bind_list(plan.graph.finish, plan.finish_schedule, contexts_.data() + plan.graph.pass.size(),
            &finish_);
}

Executor::~Executor() = default;

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

void Executor::find_contexts(const ArenaLayout& layout, const Arena& arena) {
  for (const Place& place : plan_.memory.scratch) {
    Context& c = contexts_.emplace_back(plain_);
    if (place.region == Place::Region::kNone) continue;
    c.workspace = arena.data() + layout.step_offset() + place.offset;
    c.workspace_bytes = static_cast<size_t>(place.bytes);
  }
}

void Executor::bind_list(const std::vector<Node>& nodes, const Schedule& schedule,
                         const Context* contexts, List* list) {
  list->nodes = &nodes;
  list->schedule = &schedule;
  list->calls.reserve(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    calls_[nodes[i].op] = 0;  // counting never allocates later
    list->calls.push_back(binding_of(nodes[i].op)
                              .bind({View{plan_.graph, data_}, kernels_, contexts + i,
                                     &async_context_, mesh_, device_, device_finish_.get()},
                                    nodes[i]));
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!schedule.nodes[i].is_async) continue;
    const bool last_only = nodes[i].run.last_pass_only;
    list->async.push_back([this, last_only, call = &list->calls[i]] {
      if (!last_only || scalars_.is_last_pass) (*call)(scalars_);
    });
  }
}

std::byte* Executor::find(const std::string& name) const {
  const auto ref = plan_.graph.find(name);
  return ref ? data_[static_cast<size_t>(ref->id)] : nullptr;
}

std::byte* Executor::find_input(const std::string& name) {
  if (device_->is_host()) return find(name);
  const auto found = input_offsets_.find(name);
  return found == input_offsets_.end() ? nullptr : input_staging_->open() + found->second;
}

void Executor::fill(
    const std::function<void(const std::function<void*(const std::string&)>&)>& fn) const {
  std::map<std::string, std::vector<std::byte>> filled;
  fn([&](const std::string& name) -> void* {
    if (device_->is_host()) return find(name);
    std::vector<std::byte>& memory = filled[name];
    memory.resize(static_cast<size_t>(value_bytes(plan_.graph[*plan_.graph.find(name)])));
    return memory.data();
  });
  for (const auto& [name, memory] : filled) {
    device_->write(find(name), memory.data(), static_cast<int64_t>(memory.size()));
  }
}

void Executor::read_bytes(const std::string& name, void* to, size_t bytes) const {
  const std::byte* from = find(name);
  if (!from) throw BugError("the plan has no " + name);  // ensure() would allocate
  device_->read(to, from, static_cast<int64_t>(bytes));
}

void Executor::count_calls(const List& list, const StepScalars& scalars) {
  for (const Node& node : *list.nodes) {
    if (!node.run.last_pass_only || scalars.is_last_pass) ++calls_.find(node.op)->second;
  }
}

void Executor::run(List& list, const StepScalars& scalars) {
  count_calls(list, scalars);
  if (!device_->is_host()) return replay(list, scalars);
  call_all(list, scalars);
}

// Ranks differ in the nodes between collectives, but not in these: all poll before the same one.
// Then all have posted the same collectives to the other lane, and these complete.
void Executor::check_stop(const List& list, size_t next, int* num_collectives, int num_posted) {
  if (!has_collectives_) return throw_if_stopped();
  if (!should_stop_ || !is_collective((*list.nodes)[next].op)) return;
  if (++*num_collectives % kCollectivesPerQuestion != 0 || !(*should_stop_)()) return;
  if (num_posted > 0) lane_.wait(num_posted);
  throw StopError(stop_signal());
}

void Executor::call_all(List& list, const StepScalars& scalars) {
  scalars_ = scalars;
  lane_.begin(&list.async);
  int num_collectives = 0, num_posted = 0;
  for (size_t i = 0; i < list.calls.size(); ++i) {
    if (may_stop_ && &list == &pass_) check_stop(list, i, &num_collectives, num_posted);
    const ScheduledNode& s = list.schedule->nodes[i];
    if (s.wait_for > 0) lane_.wait(s.wait_for);
    if (s.is_async) {
      lane_.post();
      ++num_posted;
      if (!overlaps_) lane_.wait(num_posted);
    } else {
      list.calls[i](scalars);
    }
  }
  if (!list.async.empty()) lane_.wait(list.schedule->num_async);
}

void Executor::drain() {
  lane_.drain();
  for (List* list : {&pass_, &finish_}) list->captured_graphs.clear();
}

void Executor::allow_stop() {
  may_stop_ = true;
  has_collectives_ = std::any_of(pass_.nodes->begin(), pass_.nodes->end(),
                                 [](const Node& node) { return is_collective(node.op); });
}

void Executor::run_pass(const StepScalars& scalars) {
  if (!device_->is_host()) send_inputs();
  run(pass_, scalars);
}

void Executor::run_finish(const StepScalars& scalars) {
  if (!device_->is_host()) send_scalars(scalars);
  run(finish_, scalars);
}

}  // namespace weft
