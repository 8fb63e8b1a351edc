// comm/shm/shm.cpp: the collectives over shared memory: who reads what from whom.
//
// Three paths. Small data is staged at the first tick of the call, and every rank computes the
// whole result: a single barrier. Large data in arenas is read in place, and a last tick signals
// that all have read it. Other data goes through the staging areas, one chunk per tick.
#include "comm/shm/shm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "comm/byte_offset.h"
#include "comm/reduce.h"
#include "comm/shm/group.h"

namespace weft {
namespace {

// Up to this size a second barrier would cost more than reading everything from everyone.
constexpr int64_t kOneBarrierBytes = 16 << 10;
// all_reduce sums a piece and writes it to all peers while it is in L1.
constexpr int64_t kPieceBytes = 16 << 10;

void copy_bytes(void* out, const void* in, int64_t bytes) {
  if (bytes > 0 && out != in) std::memcpy(out, in, static_cast<size_t>(bytes));
}

class ShmComm : public Comm {
 public:
  explicit ShmComm(ShmGroup group) : group_(std::move(group)) {}

  int rank() const override { return group_.me(); }
  int size() const override { return group_.size(); }
  const char* name() const override { return "shm"; }

  void all_reduce(void* data, int64_t count, Dtype dtype, Reduce op) override;
  void reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype) override;
  void all_gather(const void* in, void* out, int64_t bytes) override;
  void all_to_all(const void* in, void* out, int64_t bytes) override;
  void broadcast(void* data, int64_t bytes, int root) override;
  void send(const void* data, int64_t bytes, int to) override;
  void recv(void* data, int64_t bytes, int from) override;
  void barrier() override;
  std::unique_ptr<Comm> split(int color, int key) override;
  void adopt(Comm& fresh) override { group_ = std::move(dynamic_cast<ShmComm&>(fresh).group_); }
  void abort(const std::string& reason) override { group_.world().abort(reason); }
  void abort_wait(const std::string& reason) override { group_.world().abort(reason, true); }
  bool is_aborted() const override { return group_.world().is_aborted(); }
  // For every rank: the world has one deadline, suspended while any rank suspends it.
  void set_deadline_ms(int64_t ms) override { group_.world().set_deadline_ms(ms); }
  int64_t deadline_ms() const override { return group_.world().deadline_ms(); }
  void set_no_deadline(bool patient) override { group_.world().add_no_deadline(patient ? 1 : -1); }
  void drop_deadline() override { group_.drop_deadline(); }

 private:
  using Pointers = std::array<const void*, kMaxLocalRanks>;

  void begin(CommOp op, int64_t bytes);
  void stage_shares(const void* in, int64_t bytes, int64_t offset, int64_t length);
  template <typename Stage, typename Take, typename Direct>
  void exchange(CommCall call, const void* data, int64_t data_bytes, int64_t step,
                const Stage& stage, const Take& take, const Direct& direct);
  void gather(const void* in, void* out, int64_t bytes);
  void sum_part_in_arenas(int64_t count, Dtype dtype, Reduce op);
  // The share of a staging area that holds one rank's piece.
  int64_t share() const { return group_.chunk_bytes() / size() / 8 * 8; }

  ShmGroup group_;
};

void ShmComm::begin(CommOp op, int64_t bytes) {
  group_.check_abort(op);
  counts_[static_cast<int>(op)].calls += 1;
  counts_[static_cast<int>(op)].bytes += bytes;
}

// call.bytes are moved in steps: stage(offset, length) copies one step of this rank's data into its
// staging area, take(offset, length) reads that step from all; direct() does everything at once,
// from the arenas. data (data_bytes) is what the peers read from this rank; null: nothing.
template <typename Stage, typename Take, typename Direct>
void ShmComm::exchange(CommCall call, const void* data, int64_t data_bytes, int64_t step,
                       const Stage& stage, const Take& take, const Direct& direct) {
  if (call.bytes <= std::min(kOneBarrierBytes, step)) {
    stage(0, call.bytes);
    group_.enter(call);
    take(0, call.bytes);
    return;
  }
  call.location = 0;
  if (data != nullptr) {
    call.location = group_.world().locate(group_.world_rank(rank()), data, data_bytes);
  }
  group_.enter(call);
  if (group_.is_everyone_in_arena()) {
    direct();
    group_.tick();
    return;
  }
  for (int64_t offset = 0; offset < call.bytes; offset += step) {
    const int64_t length = std::min(step, call.bytes - offset);
    stage(offset, length);
    group_.tick();
    take(offset, length);
  }
}

void ShmComm::all_reduce(void* data, int64_t count, Dtype dtype, Reduce op) {
  const int64_t element = dtype_bytes(dtype), bytes = count * element;
  begin(CommOp::kAllReduce, bytes);
  if (size() == 1) return;
  const CommCall call{CommOp::kAllReduce, dtype, op, 0, bytes, ShmWorld::kPrivate, 0};
  exchange(
      call, data, bytes, group_.chunk_bytes(),
      [&](int64_t offset, int64_t length) {
        copy_bytes(group_.stage(), byte_at(data, offset), length);
      },
      [&](int64_t offset, int64_t length) {
        Pointers in;
        for (int m = 0; m < size(); ++m) in[static_cast<size_t>(m)] = group_.staged(m);
        reduce_tree(in.data(), size(), byte_at(data, offset), length / element, dtype, op);
      },
      [&] { sum_part_in_arenas(count, dtype, op); });
}

// Each rank sums its share of the elements, which no other rank reads, and writes it to all.
void ShmComm::sum_part_in_arenas(int64_t count, Dtype dtype, Reduce op) {
  const int64_t element = dtype_bytes(dtype);
  const int64_t piece = kPieceBytes / element, line = 64 / element;
  const int64_t share = (count / size() + line) / line * line;
  const int64_t first = std::min(count, rank() * share), last = std::min(count, first + share);
  std::array<char*, kMaxLocalRanks> data;
  for (int m = 0; m < size(); ++m) data[static_cast<size_t>(m)] = group_.data(m);
  for (int64_t start = first; start < last; start += piece) {
    const int64_t length = std::min(piece, last - start);
    Pointers in;
    for (size_t m = 0; m < static_cast<size_t>(size()); ++m) in[m] = data[m] + start * element;
    char* mine = data[static_cast<size_t>(rank())] + start * element;
    reduce_tree(in.data(), size(), mine, length, dtype, op);
    for (size_t m = 0; m < static_cast<size_t>(size()); ++m) {
      copy_bytes(data[m] + start * element, mine, length * element);
    }
  }
}

// The part at offset of each member's `bytes`, side by side.
void ShmComm::stage_shares(const void* in, int64_t bytes, int64_t offset, int64_t length) {
  for (int m = 0; m < size(); ++m) {
    copy_bytes(byte_at(group_.stage(), m * share()), byte_at(in, m * bytes + offset), length);
  }
}

void ShmComm::reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype) {
  const int64_t element = dtype_bytes(dtype), bytes = count * element;
  begin(CommOp::kReduceScatter, size() * bytes);
  if (size() == 1) return copy_bytes(out, in, bytes);
  const CommCall call{CommOp::kReduceScatter, dtype, Reduce::kSum, 0, bytes, ShmWorld::kPrivate, 0};
  exchange(
      call, in, size() * bytes, share(),
      [&](int64_t offset, int64_t length) { stage_shares(in, bytes, offset, length); },
      [&](int64_t offset, int64_t length) {
        Pointers from;
        for (int m = 0; m < size(); ++m) {
          from[static_cast<size_t>(m)] = byte_at(group_.staged(m), rank() * share());
        }
        reduce_tree(from.data(), size(), byte_at(out, offset), length / element, dtype,
                    Reduce::kSum);
      },
      [&] {
        Pointers from;
        for (int m = 0; m < size(); ++m) {
          from[static_cast<size_t>(m)] = byte_at(group_.data(m), rank() * bytes);
        }
        reduce_tree(from.data(), size(), out, count, dtype, Reduce::kSum);
      });
}

void ShmComm::all_gather(const void* in, void* out, int64_t bytes) {
  begin(CommOp::kAllGather, bytes);
  gather(in, out, bytes);
}

// Every rank begins with its own part, so that not all read from the same one.
void ShmComm::gather(const void* in, void* out, int64_t bytes) {
  if (size() == 1) return copy_bytes(out, in, bytes);
  const CommCall call{CommOp::kAllGather, Dtype::kU8, Reduce::kSum, 0, bytes,
                      ShmWorld::kPrivate, 0};
  exchange(
      call, in, bytes, group_.chunk_bytes(),
      [&](int64_t offset, int64_t length) {
        copy_bytes(group_.stage(), byte_at(in, offset), length);
      },
      [&](int64_t offset, int64_t length) {
        for (int i = 0; i < size(); ++i) {
          const int m = (rank() + i) % size();
          copy_bytes(byte_at(out, m * bytes + offset), group_.staged(m), length);
        }
      },
      [&] {
        copy_bytes(byte_at(out, rank() * bytes), in, bytes);
        for (int i = 1; i < size(); ++i) {
          const int m = (rank() + i) % size();
          copy_bytes(byte_at(out, m * bytes), group_.data(m), bytes);
        }
      });
}

void ShmComm::all_to_all(const void* in, void* out, int64_t bytes) {
  begin(CommOp::kAllToAll, size() * bytes);
  if (size() == 1) return copy_bytes(out, in, bytes);
  const CommCall call{CommOp::kAllToAll, Dtype::kU8, Reduce::kSum, 0, bytes, ShmWorld::kPrivate, 0};
  exchange(
      call, in, size() * bytes, share(),
      [&](int64_t offset, int64_t length) { stage_shares(in, bytes, offset, length); },
      [&](int64_t offset, int64_t length) {
        for (int i = 0; i < size(); ++i) {
          const int m = (rank() + i) % size();
          copy_bytes(byte_at(out, m * bytes + offset), byte_at(group_.staged(m), rank() * share()),
                     length);
        }
      },
      [&] {
        for (int i = 0; i < size(); ++i) {
          const int m = (rank() + i) % size();
          copy_bytes(byte_at(out, m * bytes), byte_at(group_.data(m), rank() * bytes), bytes);
        }
      });
}

void ShmComm::broadcast(void* data, int64_t bytes, int root) {
  if (root < 0 || root >= size()) throw BugError("broadcast from a rank outside the group");
  begin(CommOp::kBroadcast, bytes);
  if (size() == 1) return;
  const CommCall call{CommOp::kBroadcast, Dtype::kU8, Reduce::kSum, root, bytes,
                      ShmWorld::kPrivate, 0};
  exchange(
      call, rank() == root ? data : nullptr, bytes, group_.chunk_bytes(),
      [&](int64_t offset, int64_t length) {
        if (rank() == root) copy_bytes(group_.stage(), byte_at(data, offset), length);
      },
      [&](int64_t offset, int64_t length) {
        if (rank() != root) copy_bytes(byte_at(data, offset), group_.staged(root), length);
      },
      [&] {
        if (rank() != root) copy_bytes(data, group_.data(root), bytes);
      });
}

void ShmComm::send(const void* data, int64_t bytes, int to) {
  begin(CommOp::kSend, bytes);
  group_.send(data, bytes, to);
}

void ShmComm::recv(void* data, int64_t bytes, int from) {
  begin(CommOp::kRecv, bytes);
  group_.recv(data, bytes, from);
}

void ShmComm::barrier() {
  begin(CommOp::kBarrier, 0);
  group_.enter({CommOp::kBarrier, Dtype::kU8, Reduce::kSum, 0, 0, ShmWorld::kPrivate, 0});
}

// All ranks exchange their arguments; the first member of each new group creates its block.
std::unique_ptr<Comm> ShmComm::split(int color, int key) {
  group_.check_abort(CommOp::kAllGather);
  const SplitWish mine{color, key};
  std::vector<SplitWish> wishes(static_cast<size_t>(size()));
  gather(&mine, wishes.data(), sizeof mine);
  const std::vector<int> members = members_of(wishes, color);
  const auto me = std::find(members.begin(), members.end(), rank()) - members.begin();
  int64_t block = 0;
  if (me == 0) {
    block = group_.world().new_block(
        ShmGroup::block_bytes(static_cast<int>(members.size()), group_.chunk_bytes()));
  }
  std::vector<int64_t> blocks(static_cast<size_t>(size()));
  gather(&block, blocks.data(), sizeof(block));
  std::vector<int> ranks;
  for (const int m : members) ranks.push_back(group_.world_rank(m));
  return std::make_unique<ShmComm>(ShmGroup(group_.shared_world(),
                                            blocks[static_cast<size_t>(members.front())],
                                            std::move(ranks), static_cast<int>(me)));
}

}  // namespace

std::unique_ptr<Comm> make_shm_comm(std::shared_ptr<ShmWorld> world, int rank) {
  ensure(rank >= 0 && rank < world->num_ranks(), "a rank outside the world");
  std::vector<int> ranks;
  for (int r = 0; r < world->num_ranks(); ++r) ranks.push_back(r);
  const int64_t block = world->first_block();
  return std::make_unique<ShmComm>(ShmGroup(std::move(world), block, std::move(ranks), rank));
}

}  // namespace weft
