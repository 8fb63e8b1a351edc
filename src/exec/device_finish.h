// exec/device_finish.h: norm and updates on a GPU, each one launch over all parameters.
//
// The finish list has one node per parameter. On a GPU the squares of all gradients are computed
// with the norm, and all parameters are updated at the first update: nothing in between depends on
// the order. The lists are tables in device memory, filled once.
//
// Without clipping the update does not depend on the norm. Where its kernel can sum the squares of
// the gradients that it reads, both happen with the norm, in one pass over the gradients.
#pragma once

#include <utility>
#include <vector>

#include "exec/mesh.h"
#include "exec/op_binding.h"
#include "exec/step_scalars.h"
#include "exec/view.h"
#include "kernel/device_kernels.h"
#include "tensor/device.h"

namespace weft {

class DeviceFinish {
 public:
  // While planning the view's pointers are not real addresses.
  DeviceFinish(const View& view, const Kernels& kernels, const std::vector<Node>& finish);

  int64_t table_bytes() const { return table_bytes_; }
  int64_t workspace_bytes() const;  // of the norm

  // While the nodes are bound: the norm's context, and whether this update is the first, which
  // performs all of them.
  void set_context(const Context& context) { context_ = context; }
  bool take_update() { return !std::exchange(has_update_, true); }

  // Fills the tables. Then the calls may be queued, after the step's scalars were copied to
  // scalars().
  void place(Device* device, std::byte* tables);
  UpdateScalars* scalars() const { return scalars_; }
  void find_norm(const Mesh& mesh) const;
  void update() const;  // unless it was done with the norm
  void check(const UpdateScalars& scalars) const;

 private:
  struct Group {  // of one kind of update and one set of types
    decltype(UpdateForms::all) kernel;
    UpdateTypes types;
    std::vector<UpdateItem> items;
    std::byte* table = nullptr;
    int64_t num_blocks = 0;
  };
  struct Squares {
    Dtype dtype;
    std::vector<SquaresItem> items;
    std::byte* table = nullptr;
    int64_t num_blocks = 0;
  };
  void add_update(const View& view, const Node& node);
  void add_squares(const View& view, Ref gradient);
  bool can_join(const View& view, const std::vector<Node>& finish) const;
  void place_partials();
  void queue_updates() const;

  const Kernels& kernels_;
  std::vector<Group> groups_;
  std::vector<Squares> squares_;
  const float* scale_ = nullptr;
  double* norm_ = nullptr;
  float* scale_out_ = nullptr;
  LossScale* loss_scale_ = nullptr;  // fp16
  bool sums_tensor_ = false, sums_data_ = false;
  bool is_joined_ = false;  // squares are summed by the update
  int64_t num_cells_ = 0;
  int64_t table_bytes_ = 0;
  UpdateScalars* scalars_ = nullptr;
  Context context_{};
  bool has_update_ = false;
};

// What a step's scalars are on the device.
UpdateScalars update_scalars(const StepScalars& s);

}  // namespace weft
