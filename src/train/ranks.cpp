// train/ranks.cpp: the world split along the axes of the mesh.
#include "train/ranks.h"

#include "base/error.h"
#include "comm/shm.h"

namespace weft {

Ranks::Ranks(const Layout& layout) : layout_(layout), all_(make_solo_comm()) {
  ensure(layout.num_ranks() == 1, "one rank cannot stand for several");
}

Ranks::Ranks(const Layout& layout, std::shared_ptr<ShmWorld> world, int rank)
    : layout_(layout),
      rank_(rank),
      shared_(std::move(world)),
      all_(make_shm_comm(shared_, rank)),
      tensor_(all_->split(layout.dp_rank(rank), rank)),
      data_(all_->split(layout.tp_rank(rank), rank)) {
  if (layout.copies > 1) copies_ = all_->split(rank / layout.copies, rank);
  ensure(all_->size() == layout.num_ranks(),
         fmt::format("{} ranks were started for a layout of {}", all_->size(), layout.num_ranks()));
}

Mesh Ranks::mesh() const {
  Mesh m;
  m.tp = layout_.tp;
  m.dp = layout_.dp;
  if (layout_.tp > 1) m.tensor = tensor_.get();
  if (layout_.dp > 1) m.data = data_.get();
  m.copies = copies_.get();
  return m;
}

void* Ranks::take_memory(int64_t bytes) {
  return shared_ ? shared_->take_arena(rank_, bytes) : nullptr;
}

void Ranks::sum_over_data(int64_t* values, int64_t count) {
  if (layout_.dp > 1) data_->all_reduce(values, count, Dtype::kI64);
}

}  // namespace weft
