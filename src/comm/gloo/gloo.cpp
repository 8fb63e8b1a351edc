// comm/gloo/gloo.cpp: the collectives over TCP: who sends what to whom.
//
// Small data travels with the headers, and every rank computes the whole result. Otherwise each
// rank receives its share of the elements from all others, adds them up, and sends the sum to all:
// 2 (n - 1) / n of the tensor per rank go over the wire, which is optimal. Data goes directly from
// its rank to its destination, since sums must see all addends in their order: a ring, which adds
// while it forwards, would tie the bits to the ring.
#include "comm/gloo/gloo.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "comm/byte_offset.h"
#include "comm/gloo/link.h"
#include "comm/reduce.h"

namespace weft {
namespace {

void move_bytes(void* out, const void* in, int64_t bytes) {
  if (bytes > 0 && out != in) std::memmove(out, in, static_cast<size_t>(bytes));
}

class GlooComm : public Comm {
 public:
  explicit GlooComm(std::unique_ptr<GlooLink> link)
      : link_(std::move(link)), routes_(static_cast<size_t>(size())), addends_(routes_.size()) {}

  int rank() const override { return link_->me(); }
  int size() const override { return link_->size(); }
  const char* name() const override { return "gloo"; }

  void all_reduce(void* data, int64_t count, Dtype dtype, Reduce op) override;
  void reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype) override;
  void all_gather(const void* in, void* out, int64_t bytes) override;
  void all_to_all(const void* in, void* out, int64_t bytes) override;
  void broadcast(void* data, int64_t bytes, int root) override;
  void send(const void* data, int64_t bytes, int to) override;
  void recv(void* data, int64_t bytes, int from) override;
  void barrier() override;
  std::unique_ptr<Comm> split(int color, int key) override;
  void adopt(Comm& fresh) override { link_ = std::move(dynamic_cast<GlooComm&>(fresh).link_); }
  void abort(const std::string& reason) override { link_->world()->abort(reason); }
  void abort_wait(const std::string& reason) override { link_->world()->abort(reason, true); }
  bool is_aborted() const override { return link_->world()->is_aborted(); }
  void set_deadline_ms(int64_t ms) override { link_->world()->set_deadline_ms(ms); }
  int64_t deadline_ms() const override { return link_->world()->deadline_ms(); }
  void set_no_deadline(bool patient) override { link_->world()->add_no_deadline(patient ? 1 : -1); }
  void drop_deadline() override { link_->drop_deadline(); }

 private:
  void begin(CommOp op, int64_t bytes);
  void gather(const void* in, void* out, int64_t bytes);
  // The bytes of a member's share of a chunk: whole elements of any dtype.
  int64_t share() const {
    return std::max<int64_t>(64, link_->world()->options().chunk_bytes / size() / 64 * 64);
  }
  GlooLink::Route& route(int m) { return routes_[static_cast<size_t>(m)]; }
  void add_up(const void* mine, int64_t stride, void* out, int64_t count, Dtype dtype, Reduce op);
  void reduce_inline(const void* mine, void* out, int64_t count, Dtype dtype, Reduce op);

  std::unique_ptr<GlooLink> link_;
  std::vector<GlooLink::Route> routes_;
  std::vector<const void*> addends_;
  std::vector<char> received_;
};

void GlooComm::begin(CommOp op, int64_t bytes) {
  link_->world()->check_abort(comm_op_name(op));
  counts_[static_cast<int>(op)].calls += 1;
  counts_[static_cast<int>(op)].bytes += bytes;
}

// out = the tree over received_, one stride per member, and this rank's own data.
void GlooComm::add_up(const void* mine, int64_t stride, void* out, int64_t count, Dtype dtype,
                      Reduce op) {
  for (int m = 0; m < size(); ++m) {
    addends_[static_cast<size_t>(m)] = m == rank() ? mine : received_.data() + m * stride;
  }
  reduce_tree(addends_.data(), size(), out, count, dtype, op);
}

void GlooComm::reduce_inline(const void* mine, void* out, int64_t count, Dtype dtype, Reduce op) {
  for (int m = 0; m < size(); ++m) {
    addends_[static_cast<size_t>(m)] = m == rank() ? mine : link_->from(m);
  }
  reduce_tree(addends_.data(), size(), out, count, dtype, op);
}

void GlooComm::all_reduce(void* data, int64_t count, Dtype dtype, Reduce op) {
  const int64_t element = dtype_bytes(dtype), bytes = count * element;
  begin(CommOp::kAllReduce, bytes);
  if (size() == 1) return;
  const CommCall call{CommOp::kAllReduce, dtype, op, 0, bytes, 0, 0};
  if (bytes <= GlooLink::kLittleBytes) {
    link_->meet(call, data, bytes, 0);
    return reduce_inline(data, data, count, dtype, op);
  }
  link_->meet(call, nullptr, 0, 0);
  const int64_t most = share();
  received_.resize(static_cast<size_t>(size() * most));
  for (int64_t start = 0; start < bytes; start += size() * most) {
    // Member m's share of this chunk: the last chunk is cut evenly too.
    const int64_t chunk = std::min(bytes - start, size() * most);
    const int64_t part = std::min(most, (chunk / size() + 63) / 64 * 64 + 64);
    const auto first = [&](int m) { return start + std::min(chunk, m * part); };
    const auto length = [&](int m) { return first(m + 1) - first(m); };
    char* mine = byte_at(data, first(rank()));
    for (int m = 0; m < size(); ++m) {
      route(m) = {byte_at(data, first(m)), length(m), received_.data() + m * most, length(rank())};
    }
    link_->exchange(routes_);
    add_up(mine, most, mine, length(rank()) / element, dtype, op);
    for (int m = 0; m < size(); ++m) {
      route(m) = {mine, length(rank()), byte_at(data, first(m)), length(m)};
    }
    link_->exchange(routes_);
  }
}

void GlooComm::reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype) {
  const int64_t element = dtype_bytes(dtype), bytes = count * element;
  begin(CommOp::kReduceScatter, size() * bytes);
  if (size() == 1) return move_bytes(out, in, bytes);
  const CommCall call{CommOp::kReduceScatter, dtype, Reduce::kSum, 0, bytes, 0, 0};
  if (bytes <= GlooLink::kLittleBytes) {
    link_->meet(call, in, bytes, bytes);
    return reduce_inline(byte_at(in, rank() * bytes), out, count, dtype, Reduce::kSum);
  }
  link_->meet(call, nullptr, 0, 0);
  const int64_t most = share();
  received_.resize(static_cast<size_t>(size() * most));
  for (int64_t start = 0; start < bytes; start += most) {
    const int64_t length = std::min(most, bytes - start);
    for (int m = 0; m < size(); ++m) {
      route(m) = {byte_at(in, m * bytes + start), length, received_.data() + m * most, length};
    }
    link_->exchange(routes_);
    add_up(byte_at(in, rank() * bytes + start), most, byte_at(out, start), length / element, dtype,
           Reduce::kSum);
  }
}

void GlooComm::all_gather(const void* in, void* out, int64_t bytes) {
  begin(CommOp::kAllGather, bytes);
  gather(in, out, bytes);
}

void GlooComm::gather(const void* in, void* out, int64_t bytes) {
  move_bytes(byte_at(out, rank() * bytes), in, bytes);
  if (size() == 1) return;
  const CommCall call{CommOp::kAllGather, Dtype::kU8, Reduce::kSum, 0, bytes, 0, 0};
  if (bytes <= GlooLink::kLittleBytes) {
    link_->meet(call, in, bytes, 0);
    for (int m = 0; m < size(); ++m) {
      if (m != rank()) move_bytes(byte_at(out, m * bytes), link_->from(m), bytes);
    }
    return;
  }
  link_->meet(call, nullptr, 0, 0);
  for (int m = 0; m < size(); ++m) {
    route(m) = {static_cast<const char*>(in), bytes, byte_at(out, m * bytes), bytes};
  }
  link_->exchange(routes_);
}

void GlooComm::all_to_all(const void* in, void* out, int64_t bytes) {
  begin(CommOp::kAllToAll, size() * bytes);
  move_bytes(byte_at(out, rank() * bytes), byte_at(in, rank() * bytes), bytes);
  if (size() == 1) return;
  const CommCall call{CommOp::kAllToAll, Dtype::kU8, Reduce::kSum, 0, bytes, 0, 0};
  if (bytes <= GlooLink::kLittleBytes) {
    link_->meet(call, in, bytes, bytes);
    for (int m = 0; m < size(); ++m) {
      if (m != rank()) move_bytes(byte_at(out, m * bytes), link_->from(m), bytes);
    }
    return;
  }
  link_->meet(call, nullptr, 0, 0);
  for (int m = 0; m < size(); ++m) {
    route(m) = {byte_at(in, m * bytes), bytes, byte_at(out, m * bytes), bytes};
  }
  link_->exchange(routes_);
}

// The root's link carries n - 1 tensors; broadcasts are few, and there are none in a step.
void GlooComm::broadcast(void* data, int64_t bytes, int root) {
  if (root < 0 || root >= size()) throw BugError("broadcast from a rank outside the group");
  begin(CommOp::kBroadcast, bytes);
  if (size() == 1) return;
  const CommCall call{CommOp::kBroadcast, Dtype::kU8, Reduce::kSum, root, bytes, 0, 0};
  if (bytes <= GlooLink::kLittleBytes) {
    link_->meet(call, data, rank() == root ? bytes : 0, 0);
    if (rank() != root) move_bytes(data, link_->from(root), bytes);
    return;
  }
  link_->meet(call, nullptr, 0, 0);
  for (int m = 0; m < size(); ++m) {
    route(m) = {};
    if (rank() == root) route(m) = {static_cast<const char*>(data), bytes, nullptr, 0};
  }
  if (rank() != root) route(root) = {nullptr, 0, static_cast<char*>(data), bytes};
  link_->exchange(routes_);
}

void GlooComm::send(const void* data, int64_t bytes, int to) {
  if (to < 0 || to >= size() || to == rank())
    throw BugError("send needs another rank of the group");
  begin(CommOp::kSend, bytes);
  link_->send(data, bytes, to);
}

void GlooComm::recv(void* data, int64_t bytes, int from) {
  if (from < 0 || from >= size() || from == rank()) {
    throw BugError("recv needs another rank of the group");
  }
  begin(CommOp::kRecv, bytes);
  link_->recv(data, bytes, from);
}

void GlooComm::barrier() {
  begin(CommOp::kBarrier, 0);
  link_->meet({CommOp::kBarrier, Dtype::kU8, Reduce::kSum, 0, 0, 0, 0}, nullptr, 0, 0);
}

// All ranks exchange their arguments; a group's name encodes its parent and the split's number.
std::unique_ptr<Comm> GlooComm::split(int color, int key) {
  link_->world()->check_abort("split");
  const SplitWish mine{color, key};
  std::vector<SplitWish> wishes(static_cast<size_t>(size()));
  gather(&mine, wishes.data(), sizeof mine);
  std::vector<int> members = members_of(wishes, color);
  const auto me = std::find(members.begin(), members.end(), rank()) - members.begin();
  const std::string id = fmt::format("{}/{}.{}", link_->id(), link_->number(), members.front());
  for (int& m : members) m = link_->world_rank(m);
  return std::make_unique<GlooComm>(
      std::make_unique<GlooLink>(link_->world(), id, std::move(members), static_cast<int>(me)));
}

}  // namespace

bool has_gloo() { return true; }

std::unique_ptr<Comm> make_gloo_comm(const GlooOptions& options) {
  ensure(options.rank >= 0 && options.rank < options.num_ranks, "a rank outside the world");
  std::vector<int> ranks;
  for (int r = 0; r < options.num_ranks; ++r) ranks.push_back(r);
  return std::make_unique<GlooComm>(std::make_unique<GlooLink>(
      std::make_shared<GlooWorld>(options), "world", std::move(ranks), options.rank));
}

}  // namespace weft
