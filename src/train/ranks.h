// train/ranks.h: this rank's place in the layout, its groups, and memory that they share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/nccl/nccl_library.h"
#include "exec/mesh.h"
#include "kernel/kernels.h"
#include "net/shm_world.h"
#include "planning/layout.h"
#include "tensor/device.h"
#include "train/hang_rule.h"

namespace weft {

class StoreServer;

class Ranks {
 public:
  // Alone.
  explicit Ranks(const Layout& layout);
  // One of layout.num_ranks() ranks; collective. world: of this machine, where the rank's number is
  // lower by first_rank. all: its handle on the group of all ranks; null: chosen automatically,
  // where the world has all of them. interface: launch.interface, or this machine's address.
  Ranks(const Layout& layout, std::shared_ptr<ShmWorld> world, int rank,
        std::unique_ptr<Comm> all = nullptr, const std::string& interface = "lo",
        int first_rank = 0);
  ~Ranks();

  const Layout& layout() const { return layout_; }
  int rank() const { return rank_; }
  int size() const { return layout_.num_ranks(); }
  int dp_rank() const { return layout_.dp_rank(rank_); }
  Comm& world() const { return *all_; }
  // All ranks again, without a deadline: for the threads that write checkpoints.
  Comm& savers() const { return *savers_; }
  // The tensor-parallel ranks of this one's rows; null: it is the only one.
  Comm* tensor_group() const { return layout_.tp > 1 ? host_.tensor.get() : nullptr; }
  Mesh mesh() const;
  // Memory for an arena, which peers can read; null: use anonymous memory.
  void* take_memory(int64_t bytes);

  // How ranks on GPUs communicate, overriding WEFT_COMM (planning/backend.h): in the memory of one
  // GPU, or over NCCL (null: this machine's).
  void share_gpus(bool shared) { shares_gpus_ = shared; }
  void use_nccl(NcclLibrary* library) { nccl_ = library; }

  // After a failure of other ranks, when the world was reset: the groups are made anew. Pointers to
  // them stay valid. Collective, with the constructor of ranks that are replaced. Those on GPUs
  // follow in SharedArena::rejoin.
  void rejoin();
  // Before it waits for that: connections to other nodes and their threads are gone.
  void leave();
  // How the group of all ranks is made anew; without this, in the shared memory of the world.
  using MakeAll = std::function<std::unique_ptr<Comm>()>;
  void set_make_all(MakeAll make_all) { make_all_ = std::move(make_all); }
  // Whether this process takes the place of one that died.
  bool is_replacement() const { return was_replaced_; }

  // What this rank does, for its supervisor and `weft status`. Without a step: of the last one.
  void use_heartbeat(Heartbeat* heartbeat) { heartbeat_ = heartbeat; }
  Heartbeat* heartbeat() const { return heartbeat_; }  // null: nobody wants to know
  void note_phase(Phase phase) const {
    if (heartbeat_ != nullptr) heartbeat_->note(phase, heartbeat_->step());
  }
  void note_phase(Phase phase, int64_t step) const {
    if (heartbeat_ != nullptr) heartbeat_->note(phase, step);
  }

  // How long steps take: the limit of the host's waits for a GPU.
  void note_step(int64_t ms) { hang_rule_.note_step(ms); }

  // The sum over the data-parallel ranks, the same on all.
  void sum_over_data(int64_t* values, int64_t count);

 private:
  friend class SharedArena;
  struct Groups {
    std::shared_ptr<Comm> tensor, data, copies[2];
    std::vector<Comm*> all() const;  // the existing ones
  };

  struct Split {
    Groups groups;
    std::unique_ptr<Comm> savers;
  };
  Split split() const;  // of all_; collective

  Layout layout_;
  HangRule hang_rule_;
  int rank_ = 0, local_rank_ = 0;
  bool was_replaced_ = false;
  std::string interface_ = "lo";
  bool shares_gpus_;
  NcclLibrary* nccl_ = nullptr;
  std::shared_ptr<ShmWorld> shared_;
  Heartbeat* heartbeat_ = nullptr;
  std::unique_ptr<StoreServer> store_;  // of rank 0, over Gloo
  std::unique_ptr<Comm> all_, savers_;
  MakeAll make_all_;
  Groups host_, on_device_;  // on_device_: while a GPU arena is shared
};

// While it lives, collectives on data in the arena use the device, where that is a GPU: NCCL, or
// its memory where ranks share one. Collective construction and destruction. Must outlive all users
// of the groups, and be destroyed before the arena, which by then no other rank has mapped.
class SharedArena {
 public:
  SharedArena(Ranks* ranks, Device* device, const Kernels& kernels, std::byte* arena,
              int64_t bytes);
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  // After a failure of other ranks: what is queued on the device no longer waits for them.
  void abort_queued();
  // Then: waits for what is queued, and unmaps their arenas. PeerError where the device itself has
  // failed.
  void leave();
  // After Ranks::rejoin, with the constructor of ranks that are replaced; collective.
  void rejoin();

 private:
  void watch();
  void wait_for_others() noexcept;

  Ranks* ranks_;
  Device* device_;
};

}  // namespace weft
