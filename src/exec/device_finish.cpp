// exec/device_finish.cpp: collects items from the nodes; partial squares are in the workspace.
#include "exec/device_finish.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/exact_sum.h"
#include "exec/memory_plan.h"
#include "exec/update_binding.h"
#include "graph/ops/grad_norm.h"
#include "tensor/cell.h"

namespace weft {
namespace {

int64_t cells_of(int64_t n) { return (n + kNormCell - 1) / kNormCell; }

constexpr int64_t kLimbBytes = ExactSum::kLimbs * int64_t{sizeof(int64_t)};

}  // namespace

DeviceFinish::DeviceFinish(const View& view, const Kernels& kernels,
                           const std::vector<Node>& finish)
    : kernels_(kernels) {
  std::map<int, Ref> gradient_of;  // by what holds its squares
  for (const Node& node : finish) {
    if (node.op == &kSquaresOp) gradient_of[node.outputs[0].id] = node.inputs[0];
    if (node.op->traits.is_update) add_update(view, node);
    if (node.op != &kNormOp) continue;
    for (const Ref partials : node.inputs) add_squares(view, gradient_of.at(partials.id));
    norm_ = view.at<double>(node.outputs[0]);
    scale_out_ = view.at<float>(node.outputs[1]);
    if (node.outputs.size() > 2) loss_scale_ = view.at<LossScale>(node.outputs[2]);
    sums_tensor_ = node.as<NormAttr>().sum_tensor;
    sums_data_ = node.as<NormAttr>().sum_data;
  }
  is_joined_ = can_join(view, finish);
  table_bytes_ = align_up(sizeof(UpdateScalars));
  const DeviceKernels& device = *kernels.device;
  for (const Group& g : groups_) {
    table_bytes_ += align_up(static_cast<int64_t>(
        device.update_table_bytes(g.items.data(), static_cast<int64_t>(g.items.size()))));
  }
  for (const Squares& s : squares_) {
    if (is_joined_) break;
    table_bytes_ += align_up(static_cast<int64_t>(
        device.squares_table_bytes(s.items.data(), static_cast<int64_t>(s.items.size()))));
  }
}

void DeviceFinish::add_update(const View& view, const Node& node) {
  const UpdateInputs u = update_inputs(view, node);
  const auto kernel = binding_of(node.op).update.all;
  scale_ = u.scale;
  auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
    return g.kernel == kernel && g.types == u.types;
  });
  if (group == groups_.end()) {
    groups_.push_back({kernel, u.types, {}, nullptr, 0});
    group = groups_.end() - 1;
  }
  group->items.push_back(u.item);
}

void DeviceFinish::add_squares(const View& view, Ref gradient) {
  const Value& g = view.value(gradient);
  auto list = std::find_if(squares_.begin(), squares_.end(),
                           [&](const Squares& s) { return s.dtype == g.dtype; });
  if (list == squares_.end()) {
    squares_.push_back({g.dtype, {}, nullptr, 0});
    list = squares_.end() - 1;
  }
  const int64_t n = num_elements(g.shape);
  list->items.push_back({n, view.at(gradient), nullptr});
  num_cells_ += cells_of(n);
}

// Every update follows the norm, and its gradient is one of those that the norm counts: in their
// order, each once, one update for each.
bool DeviceFinish::can_join(const View& view, const std::vector<Node>& finish) const {
  const auto norm = std::find_if(finish.begin(), finish.end(),
                                 [](const Node& node) { return node.op == &kNormOp; });
  if (norm == finish.end() || norm->as<NormAttr>().clips || loss_scale_) return false;
  std::vector<int> counted, updated, squares, summed;
  for (auto node = finish.begin(); node != norm; ++node) {
    if (node->op != &kSquaresOp) continue;
    counted.push_back(node->inputs[0].id);
    squares.push_back(node->outputs[0].id);
  }
  for (const Ref partials : norm->inputs) summed.push_back(partials.id);
  for (auto node = norm + 1; node != finish.end() && node->op->traits.is_update; ++node) {
    const bool is_whole = num_elements(view.value(node->inputs[0]).shape) ==
                          num_elements(view.value(node->inputs[1]).shape);
    updated.push_back(is_whole ? node->inputs[1].id : -1);
  }
  size_t num_updates = 0;
  for (const Group& g : groups_) {
    num_updates += g.items.size();
    if (!can_sum_squares(g.types)) return false;
  }
  return squares == summed && counted == updated && num_updates == updated.size();
}

int64_t DeviceFinish::workspace_bytes() const {
  return align_up(kLimbBytes) + num_cells_ * int64_t{sizeof(double)};
}

// One group after another, each in the order of its items.
void DeviceFinish::place_partials() {
  auto* partials = reinterpret_cast<double*>(context_.workspace + align_up(kLimbBytes));
  const auto take = [&](int64_t n) { return std::exchange(partials, partials + cells_of(n)); };
  if (is_joined_) {
    for (Group& g : groups_) {
      for (UpdateItem& item : g.items) item.partials = take(item.n);
    }
    squares_.clear();
  }
  for (Squares& s : squares_) {
    for (SquaresItem& item : s.items) item.partials = take(item.n);
  }
}

void DeviceFinish::place(Device* device, std::byte* tables) {
  place_partials();
  scalars_ = reinterpret_cast<UpdateScalars*>(tables);
  std::byte* at = tables + align_up(sizeof(UpdateScalars));
  std::vector<std::byte> host;
  const auto send = [&](size_t bytes) {
    device->write(at, host.data(), static_cast<int64_t>(bytes));
    return std::exchange(at, at + align_up(static_cast<int64_t>(bytes)));
  };
  for (Group& g : groups_) {
    const auto count = static_cast<int64_t>(g.items.size());
    const size_t bytes = kernels_.device->update_table_bytes(g.items.data(), count);
    host.assign(bytes, std::byte{0});
    g.num_blocks = kernels_.device->update_table(g.items.data(), count, host.data());
    g.table = send(bytes);
  }
  for (Squares& s : squares_) {
    const auto count = static_cast<int64_t>(s.items.size());
    const size_t bytes = kernels_.device->squares_table_bytes(s.items.data(), count);
    host.assign(bytes, std::byte{0});
    s.num_blocks = kernels_.device->squares_table(s.items.data(), count, host.data());
    s.table = send(bytes);
  }
}

void DeviceFinish::find_norm(const Mesh& mesh) const {
  if (is_joined_) queue_updates();
  for (const Squares& s : squares_) {
    kernels_.device->squares_list(context_, {s.dtype, s.table, s.num_blocks});
  }
  auto* limbs = reinterpret_cast<int64_t*>(context_.workspace);
  const auto* partials = context_.workspace + align_up(kLimbBytes);
  kernels_.device->exact_sum(context_, {num_cells_, Dtype::kF64, partials, limbs, true});
  for (Comm* group : {sums_tensor_ ? mesh.tensor : nullptr, sums_data_ ? mesh.data : nullptr}) {
    if (group) group->all_reduce(limbs, ExactSum::kLimbs, Dtype::kI64);
  }
  kernels_.device->norm(context_, {limbs, scalars_, norm_, scale_out_, loss_scale_});
}

void DeviceFinish::update() const {
  if (!is_joined_) queue_updates();
}

void DeviceFinish::queue_updates() const {
  for (const Group& g : groups_) {
    (kernels_.device->*g.kernel)(context_,
                                 {g.types, g.table, g.num_blocks, scalars_, scale_, is_joined_});
  }
}

void DeviceFinish::check(const UpdateScalars& scalars) const {
  ensure(!is_joined_ || scalars.clip_norm == 0, "clip_norm is not that of the graph");
}

UpdateScalars update_scalars(const StepScalars& s) {
  return {static_cast<double>(s.target_tokens), s.clip_norm, s.optimizer};
}

}  // namespace weft
