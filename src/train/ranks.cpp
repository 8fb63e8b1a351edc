// train/ranks.cpp: the world split along the axes of the mesh.
#include "train/ranks.h"

#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "comm/device_comm.h"
#include "comm/gloo.h"
#include "comm/shm.h"
#include "net/interface.h"
#include "net/store.h"

namespace weft {
namespace {

// For tests: the ranks of one machine talk over TCP, as those of several will.
bool wants_gloo() {
  const char* name = std::getenv("WEFT_COMM");
  if (name == nullptr || std::strcmp(name, "shm") == 0) return false;
  if (std::strcmp(name, "cuda_ipc") == 0) return false;  // meets over shared memory
  require(std::strcmp(name, "gloo") == 0, "WEFT_COMM={}; shm, gloo and cuda_ipc are known", name);
  return true;
}

// Until all are here: one may have looked through a large checkpoint first.
void meet(Comm& comm) {
  const Patience patience(comm);
  comm.barrier();
}

// Rank 0 keeps the store, and tells the others where it is through shared memory.
std::unique_ptr<Comm> make_gloo_world(Comm& shared, const std::string& host,
                                      std::unique_ptr<StoreServer>* store) {
  if (shared.rank() == 0) *store = std::make_unique<StoreServer>(host);
  char endpoint[64] = {};
  if (*store) (*store)->endpoint().copy(endpoint, sizeof endpoint - 1);
  shared.broadcast(endpoint, sizeof endpoint, 0);
  GlooOptions options;
  options.rank = shared.rank();
  options.num_ranks = shared.size();
  options.store = endpoint;
  options.host = host;
  return make_gloo_comm(options);
}

}  // namespace

Ranks::Ranks(const Layout& layout) : layout_(layout), all_(make_solo_comm()) {
  ensure(layout.num_ranks() == 1, "one rank cannot stand for several");
}

Ranks::Ranks(const Layout& layout, std::shared_ptr<ShmWorld> world, int rank,
             std::unique_ptr<Comm> all, const std::string& interface)
    : layout_(layout), rank_(rank), shared_(std::move(world)), all_(std::move(all)) {
  if (!all_) {
    all_ = make_shm_comm(shared_, rank);
    meet(*all_);
    if (wants_gloo()) all_ = make_gloo_world(*all_, address_of_interface(interface), &store_);
  }
  tensor_ = all_->split(layout.dp_rank(rank), rank);
  data_ = all_->split(layout.tp_rank(rank), rank);
  if (layout.copies > 1) copies_ = all_->split(rank / layout.copies, rank);
  ensure(all_->size() == layout.num_ranks(),
         fmt::format("{} ranks were started for a layout of {}", all_->size(), layout.num_ranks()));
}

Ranks::~Ranks() = default;

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

void Ranks::share_arena(Device* device, const Kernels& kernels, std::byte* arena, int64_t bytes) {
  if (layout_.num_ranks() == 1 || device->is_host()) return;
  for (std::unique_ptr<Comm>* group : {&tensor_, &data_, &copies_}) {
    if (!*group) continue;
    *group = make_device_comm(std::move(*group), device, *kernels.device, arena, bytes);
  }
}

void Ranks::sum_over_data(int64_t* values, int64_t count) {
  if (layout_.dp > 1) data_->all_reduce(values, count, Dtype::kI64);
}

}  // namespace weft
