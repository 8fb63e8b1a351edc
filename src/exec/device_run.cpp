// exec/device_run.cpp: what is sent to a GPU, and what is captured there.
#include <algorithm>

#include "base/error.h"
#include "exec/device_finish.h"
#include "exec/device_lane.h"
#include "exec/executor.h"

namespace weft {
namespace {

// Sums in a fixed order use different slots each pass.
bool counts_passes(const Graph& graph) {
  return std::any_of(graph.pass.begin(), graph.pass.end(),
                     [](const Node& n) { return n.run.slots > 0; });
}

// What distinguishes runs of a list of calls: the first pass stores gradients, later ones add.
int variant_of(bool counts_passes, const StepScalars& s) {
  const int pass = counts_passes ? s.pass : s.pass > 0;
  return 2 * pass + (s.is_last_pass ? 1 : 0);
}

bool meets_on_host(const Mesh& mesh) {
  for (const Comm* group : {mesh.tensor, mesh.data, mesh.copies[0], mesh.copies[1]}) {
    if (group && group->waits_on_host()) return true;
  }
  return false;
}

}  // namespace

void Executor::prepare_device(std::byte* tables) {
  if (mesh_.data && !mesh_.data->waits_on_host()) {
    device_lane_ = std::make_unique<DeviceLane>(device_);
    async_context_.stream = device_lane_->stream();
  }
  const View view{plan_.graph, data_};
  int64_t bytes = 0;
  for (const Ref r : plan_.graph.of_kind(ValueKind::kInput)) {
    input_offsets_[plan_.graph[r].name] = bytes;
    bytes += align_up(value_bytes(plan_.graph[r]));
  }
  counts_passes_ = counts_passes(plan_.graph);
  input_staging_ = std::make_unique<Staging>(device_, bytes);
  if (plan_.graph.finish.empty()) return;
  device_finish_ = std::make_unique<DeviceFinish>(view, kernels_, plan_.graph.finish);
  tables_ = tables;
  scalar_staging_ = std::make_unique<Staging>(device_, int64_t{sizeof(UpdateScalars)});
}

void Executor::send_inputs() {
  const std::byte* from = input_staging_->open();
  for (const auto& [name, offset] : input_offsets_) {
    const Ref r = *plan_.graph.find(name);
    device_->copy(data(r), from + offset, value_bytes(plan_.graph[r]));
  }
  input_staging_->sent();
}

// The tables are written on first use: executors that share the arena and never run their finish
// list do not touch them.
void Executor::send_scalars(const StepScalars& scalars) {
  if (!device_finish_->scalars()) device_finish_->place(device_, tables_);
  const UpdateScalars sent = update_scalars(scalars);
  device_finish_->check(sent);
  *reinterpret_cast<UpdateScalars*>(scalar_staging_->open()) = sent;
  device_->copy(device_finish_->scalars(), scalar_staging_->open(), int64_t{sizeof(UpdateScalars)});
  scalar_staging_->sent();
}

// Ranks that synchronize on the host do so in order; other collectives are async.
void Executor::queue_all(List& list, const StepScalars& scalars) {
  if (device_lane_) device_lane_->begin();
  for (size_t i = 0; i < list.calls.size(); ++i) {
    const bool is_due = !(*list.nodes)[i].run.last_pass_only || scalars.is_last_pass;
    const ScheduledNode& s = list.schedule->nodes[i];
    if (device_lane_) device_lane_->wait(s.wait_for);
    if (device_lane_ && s.is_async) {
      device_lane_->post([&] {
        if (is_due) list.calls[i](scalars);
      });
    } else if (is_due) {
      list.calls[i](scalars);
    }
  }
  if (device_lane_) device_lane_->wait(list.schedule->num_async);
}

// The first time the calls are made one by one: libraries choose and build what they run. From the
// second time on they are captured.
void Executor::replay(List& list, const StepScalars& scalars) {
  const int variant = &list == &finish_ ? 0 : variant_of(counts_passes_, scalars);
  // Synchronization on the host cannot be captured; and all ranks must capture collectives at the
  // same pass.
  if (meets_on_host(mesh_) || !mesh_.passes_agree) return queue_all(list, scalars);
  const auto found = list.captured_graphs.find(variant);
  if (found == list.captured_graphs.end()) {
    queue_all(list, scalars);
    list.captured_graphs[variant] = nullptr;
    return;
  }
  if (!found->second)
    found->second = device_->capture([this, &list, scalars] { queue_all(list, scalars); });
  found->second->replay();
}

}  // namespace weft
