// train/ranks.cpp: the world split along the axes of the mesh.
#include "train/ranks.h"

#include <cstring>
#include <exception>

#include "base/error.h"
#include "comm/gloo/gloo.h"
#include "comm/ipc/device_comm.h"
#include "comm/nccl/nccl.h"
#include "comm/shm/shm.h"
#include "net/interface.h"
#include "net/store.h"
#include "planning/backend.h"

namespace weft {
namespace {

// For tests: the ranks of one machine communicate over TCP, as those of several will. (Those that
// share a GPU use shared memory.)
bool wants_gloo() { return comm_choice() == "gloo"; }

// Until all have arrived: one may have read a large checkpoint first.
void meet(Comm& comm) {
  const ScopedNoDeadline no_deadline(comm);
  comm.barrier();
}

// Rank 0 runs the store, and passes its address to the others through shared memory.
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

// Reported before ranks are started, where a supervisor starts them (check_backend).
void check_groups(const Layout& layout, bool shares_gpus, const NcclLibrary* library) {
  std::string why;
  if (!shares_gpus && !library) library = find_nccl(&why);
  if (!shares_gpus && !library) return;  // creating the group reports it
  ParallelConfig p;
  p.dp = layout.dp;
  p.tp = layout.tp;
  p.mode = layout.is_exact ? "exact" : "fast";
  check_gpu_groups(p, shares_gpus ? "" : library->version());
}

}  // namespace

Ranks::Ranks(const Layout& layout)
    : layout_(layout),
      shares_gpus_(shares_gpus()),
      all_(make_solo_comm()),
      savers_(make_solo_comm()) {
  ensure(layout.num_ranks() == 1, "one rank cannot act as several");
}

Ranks::Ranks(const Layout& layout, std::shared_ptr<ShmWorld> world, int rank,
             std::unique_ptr<Comm> all, const std::string& interface, int first_rank)
    : layout_(layout),
      rank_(rank),
      local_rank_(rank - first_rank),
      was_replaced_(world && world->generation() > 0),
      interface_(interface),
      shares_gpus_(shares_gpus()),
      shared_(std::move(world)),
      heartbeat_(shared_ ? &shared_->heartbeat(local_rank_) : nullptr),
      all_(std::move(all)) {
  if (!all_) {
    all_ = make_shm_comm(shared_, rank);
    meet(*all_);
    if (wants_gloo()) all_ = make_gloo_world(*all_, address_of_interface(interface), &store_);
  }
  Split groups = split();
  host_ = std::move(groups.groups);
  savers_ = std::move(groups.savers);
  ensure(all_->size() == layout.num_ranks(),
         fmt::format("{} ranks were started for a layout of {}", all_->size(), layout.num_ranks()));
}

Ranks::~Ranks() = default;

Ranks::Split Ranks::split() const {
  Split made;
  made.groups.tensor = all_->split(layout_.dp_rank(rank_), rank_);
  made.groups.data = all_->split(layout_.tp_rank(rank_), rank_);
  const std::vector<std::vector<int>> colors = layout_.copy_groups();
  for (size_t i = 0; i < colors.size(); ++i) {
    made.groups.copies[i] = all_->split(colors[i][static_cast<size_t>(rank_)], rank_);
  }
  made.savers = all_->split(0, rank_);
  made.savers->drop_deadline();
  return made;
}

void Ranks::rejoin() {
  ensure(shared_ && !store_, "only groups in shared memory rejoin");
  const std::unique_ptr<Comm> all = make_all_ ? make_all_() : make_shm_comm(shared_, rank_);
  all_->adopt(*all);
  if (!make_all_) meet(*all_);  // as the constructor
  const Split fresh = split();
  const std::vector<Comm*> from = fresh.groups.all(), to = host_.all();
  for (size_t i = 0; i < to.size(); ++i) to[i]->adopt(*from[i]);
  savers_->adopt(*fresh.savers);
}

void Ranks::leave() {
  for (Comm* group : host_.all()) group->leave();
  savers_->leave();
  all_->leave();
}

std::vector<Comm*> Ranks::Groups::all() const {
  std::vector<Comm*> found;
  for (const auto* group : {&tensor, &data, &copies[0], &copies[1]}) {
    if (*group) found.push_back(group->get());
  }
  return found;
}

Mesh Ranks::mesh() const {
  const auto choose = [](const std::shared_ptr<Comm>& device, const std::shared_ptr<Comm>& host) {
    return device ? device.get() : host.get();
  };
  Mesh m;
  m.tp = layout_.tp;
  m.dp = layout_.dp;
  if (layout_.tp > 1) m.tensor = choose(on_device_.tensor, host_.tensor);
  if (layout_.dp > 1) m.data = choose(on_device_.data, host_.data);
  // A rank that shares no head on that side has a group of one, which it never calls; as a host
  // group it would prevent only this rank from capturing its steps.
  for (size_t i = 0; i < 2; ++i) {
    if (host_.copies[i] && host_.copies[i]->size() > 1)
      m.copies[i] = choose(on_device_.copies[i], host_.copies[i]);
  }
  return m;
}

void* Ranks::take_memory(int64_t bytes) {
  return shared_ ? shared_->take_arena(local_rank_, bytes) : nullptr;
}

void Ranks::sum_over_data(int64_t* values, int64_t count) {
  if (layout_.dp > 1) host_.data->all_reduce(values, count, Dtype::kI64);
}

SharedArena::SharedArena(Ranks* ranks, Device* device, const Kernels& kernels, std::byte* arena,
                         int64_t bytes)
    : ranks_(ranks), device_(device) {
  if (device->is_host() || ranks->size() == 1) return;
  NcclOptions options;
  options.is_exact = ranks->layout_.is_exact;
  options.library = ranks->nccl_;
  options.interface = name_of_interface(ranks->interface_);
  check_groups(ranks->layout_, ranks->shares_gpus_, ranks->nccl_);
  const auto extend = [&](const std::shared_ptr<Comm>& host) -> std::shared_ptr<Comm> {
    if (!host || host->size() == 1) return nullptr;
    if (ranks->shares_gpus_) return make_device_comm(host, device, *kernels.device, arena, bytes);
    return make_nccl_comm(host, device, *kernels.device, arena, bytes, options);
  };
  Ranks::Groups& groups = ranks->on_device_;
  const Ranks::Groups& host = ranks->host_;
  groups = {
      extend(host.tensor), extend(host.data), {extend(host.copies[0]), extend(host.copies[1])}};
  watch();
}

void SharedArena::watch() {
  const Ranks::Groups& groups = ranks_->on_device_;
  if (ranks_->shares_gpus_ || groups.all().empty()) return;  // these wait on the host
  device_->set_watch([groups = groups, &rule = ranks_->hang_rule_](int64_t waited_ms) {
    for (Comm* group : groups.all()) {
      group->check_queued(waited_ms, rule.allowed_ms(group->deadline_ms()));
    }
  });
}

void SharedArena::abort_queued() {
  for (Comm* group : ranks_->on_device_.all()) group->abort_queued();
}

void SharedArena::leave() {
  device_->set_watch(nullptr);
  for (Comm* group : ranks_->on_device_.all()) group->leave();
  device_->wait();
}

void SharedArena::rejoin() {
  for (Comm* group : ranks_->on_device_.all()) group->rejoin();
  watch();
}

SharedArena::~SharedArena() {
  device_->set_watch(nullptr);
  Ranks::Groups& groups = ranks_->on_device_;
  const bool is_mapped = ranks_->shares_gpus_ && !groups.all().empty();
  groups = {};  // this also unmaps the others' arenas
  if (is_mapped) wait_for_others();
}

// The arena may be freed when nobody has it mapped any more. A failing rank waits for nobody: the
// others are aborted, and the driver reclaims what the process leaves.
void SharedArena::wait_for_others() noexcept {
  if (std::uncaught_exceptions() > 0) return;
  try {
    const ScopedNoDeadline no_deadline(ranks_->world());  // rank 0 may be writing the final model
    ranks_->world().barrier();
  } catch (const std::exception&) {  // a rank is gone, and its mappings with it
  }
}

}  // namespace weft
