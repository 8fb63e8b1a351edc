// comm/nodes/nodes.cpp: which path a call takes, and the hierarchical ones.
#include "comm/nodes/nodes.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/byte_offset.h"
#include "comm/call.h"
#include "comm/gloo/gloo.h"
#include "comm/nodes/node_stages.h"
#include "comm/shm/shm.h"
#include "net/store.h"

namespace weft {
namespace {

// kInside: flat is this rank alone. kFlat: Gloo does everything. kBoth: across is there too.
enum class Shape { kInside, kFlat, kBoth };

// nodes: of the members, in their order.
Shape shape_of(const std::vector<int>& nodes) {
  if (std::equal(nodes.begin() + 1, nodes.end(), nodes.begin())) return Shape::kInside;
  const auto m = static_cast<size_t>(std::count(nodes.begin(), nodes.end(), nodes.front()));
  if (!can_have_node_stages(std::ssize(nodes), static_cast<int64_t>(m))) return Shape::kFlat;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const size_t first = i / m * m;
    const bool is_new = i == first && i > 0 && nodes[i] == nodes[i - 1];
    if (nodes[i] != nodes[first] || is_new) return Shape::kFlat;
  }
  return Shape::kBoth;
}

class NodesComm : public Comm {
 public:
  NodesComm(std::unique_ptr<Comm> flat, std::unique_ptr<Comm> local, std::unique_ptr<Comm> across,
            std::vector<int> nodes, int me)
      : flat_(std::move(flat)),
        local_(std::move(local)),
        across_(std::move(across)),
        nodes_(std::move(nodes)),
        me_(me),
        shape_(shape_of(nodes_)) {}

  int rank() const override { return me_; }
  int size() const override { return static_cast<int>(nodes_.size()); }
  const char* name() const override { return "nodes"; }

  void all_reduce(void* data, int64_t count, Dtype dtype, Reduce op) override;
  void reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype) override;
  void all_gather(const void* in, void* out, int64_t bytes) override;
  void all_to_all(const void* in, void* out, int64_t bytes) override;
  void broadcast(void* data, int64_t bytes, int root) override;
  void send(const void* data, int64_t bytes, int to) override;
  void recv(void* data, int64_t bytes, int from) override;
  void barrier() override;
  std::unique_ptr<Comm> split(int color, int key) override;
  void adopt(Comm& fresh) override;
  void leave() override;

  void abort(const std::string& reason) override {
    flat_->abort(reason);
    local_->abort(reason);
  }
  void abort_wait(const std::string& reason) override {
    flat_->abort_wait(reason);
    local_->abort_wait(reason);
  }
  bool is_aborted() const override { return flat_->is_aborted() || local_->is_aborted(); }
  void set_deadline_ms(int64_t ms) override {
    flat_->set_deadline_ms(ms);
    local_->set_deadline_ms(ms);
  }
  int64_t deadline_ms() const override { return flat_->deadline_ms(); }
  void set_no_deadline(bool patient) override {
    flat_->set_no_deadline(patient);
    local_->set_no_deadline(patient);
  }
  void drop_deadline() override {
    for (Comm* group : {flat_.get(), local_.get(), across_.get()}) {
      if (group != nullptr) group->drop_deadline();
    }
  }

 private:
  // Counts the call and runs it. A failure in shared memory ends the waits of other nodes too.
  template <typename Call>
  void run(CommOp op, int64_t bytes, const Call& call) {
    counts_[static_cast<int>(op)].calls += 1;
    counts_[static_cast<int>(op)].bytes += bytes;
    try {
      call();
    } catch (const Error& e) {
      if (!flat_->is_aborted()) flat_->abort(e.what());
      throw;
    }
  }
  Comm& one() const { return shape_ == Shape::kInside ? *local_ : *flat_; }
  bool has_stages(CommOp op, int64_t bytes, Dtype dtype, Reduce reduce = Reduce::kSum) const {
    return shape_ == Shape::kBoth && has_node_stages(op, bytes, dtype, reduce);
  }
  void all_reduce_both(void* data, int64_t count, Dtype dtype, Reduce op);
  void reduce_scatter_both(const void* in, void* out, int64_t count, Dtype dtype);
  void all_gather_both(const void* in, void* out, int64_t bytes);

  std::unique_ptr<Comm> flat_, local_, across_;
  std::vector<int> nodes_;
  int me_;
  Shape shape_;
  std::vector<char> staged_;
};

void NodesComm::all_reduce(void* data, int64_t count, Dtype dtype, Reduce op) {
  const int64_t bytes = count * dtype_bytes(dtype);
  run(CommOp::kAllReduce, bytes, [&] {
    if (!has_stages(CommOp::kAllReduce, bytes, dtype, op))
      return one().all_reduce(data, count, dtype, op);
    all_reduce_both(data, count, dtype, op);
  });
}

// Every local rank goes on with its share; what is left over all of them do, with equal results.
void NodesComm::all_reduce_both(void* data, int64_t count, Dtype dtype, Reduce op) {
  const int64_t element = dtype_bytes(dtype), share = count / local_->size();
  const int64_t whole = share * local_->size();
  char* mine = byte_at(data, local_->rank() * share * element);
  if (op == Reduce::kSum)
    local_->reduce_scatter(data, mine, share, dtype);
  else
    local_->all_reduce(data, whole, dtype, op);
  across_->all_reduce(mine, share, dtype, op);
  local_->all_gather(mine, data, share * element);
  if (whole == count) return;
  local_->all_reduce(byte_at(data, whole * element), count - whole, dtype, op);
  across_->all_reduce(byte_at(data, whole * element), count - whole, dtype, op);
}

void NodesComm::reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype) {
  const int64_t bytes = count * dtype_bytes(dtype);
  run(CommOp::kReduceScatter, size() * bytes, [&] {
    if (!has_stages(CommOp::kReduceScatter, bytes, dtype))
      return one().reduce_scatter(in, out, count, dtype);
    reduce_scatter_both(in, out, count, dtype);
  });
}

// The parts of one node's ranks are neighbours: a reduce_scatter per node, then one over the nodes.
void NodesComm::reduce_scatter_both(const void* in, void* out, int64_t count, Dtype dtype) {
  const int64_t bytes = count * dtype_bytes(dtype);
  staged_.resize(static_cast<size_t>(across_->size() * bytes));
  for (int n = 0; n < across_->size(); ++n)
    local_->reduce_scatter(byte_at(in, n * local_->size() * bytes),
                           byte_at(staged_.data(), n * bytes), count, dtype);
  across_->reduce_scatter(staged_.data(), out, count, dtype);
}

void NodesComm::all_gather(const void* in, void* out, int64_t bytes) {
  run(CommOp::kAllGather, bytes, [&] {
    if (!has_stages(CommOp::kAllGather, bytes, Dtype::kU8)) return one().all_gather(in, out, bytes);
    all_gather_both(in, out, bytes);
  });
}

// The part of each node that this rank has received goes to its place, where the others read it.
void NodesComm::all_gather_both(const void* in, void* out, int64_t bytes) {
  staged_.resize(static_cast<size_t>(across_->size() * bytes));
  across_->all_gather(in, staged_.data(), bytes);
  for (int n = 0; n < across_->size(); ++n) {
    char* of_node = byte_at(out, n * local_->size() * bytes);
    char* mine = byte_at(of_node, local_->rank() * bytes);
    std::memcpy(mine, byte_at(staged_.data(), n * bytes), static_cast<size_t>(bytes));
    local_->all_gather(mine, of_node, bytes);
  }
}

void NodesComm::all_to_all(const void* in, void* out, int64_t bytes) {
  run(CommOp::kAllToAll, size() * bytes, [&] { one().all_to_all(in, out, bytes); });
}
void NodesComm::broadcast(void* data, int64_t bytes, int root) {
  run(CommOp::kBroadcast, bytes, [&] { one().broadcast(data, bytes, root); });
}
void NodesComm::send(const void* data, int64_t bytes, int to) {
  run(CommOp::kSend, bytes, [&] { one().send(data, bytes, to); });
}
void NodesComm::recv(void* data, int64_t bytes, int from) {
  run(CommOp::kRecv, bytes, [&] { one().recv(data, bytes, from); });
}
void NodesComm::barrier() {
  run(CommOp::kBarrier, 0, [&] { one().barrier(); });
}

// Every rank takes part in every split below it; who needs no group gets one of its own.
std::unique_ptr<Comm> NodesComm::split(int color, int key) {
  const SplitWish mine{color, key};
  std::vector<SplitWish> wishes(nodes_.size());
  one().all_gather(&mine, wishes.data(), sizeof mine);
  const std::vector<int> members = members_of(wishes, color);
  const auto me =
      static_cast<int>(std::find(members.begin(), members.end(), me_) - members.begin());
  std::vector<int> nodes;
  for (const int m : members) nodes.push_back(nodes_[static_cast<size_t>(m)]);
  const Shape shape = shape_of(nodes);
  std::unique_ptr<Comm> local = local_->split(color, key), flat, across;
  if (shape_ == Shape::kInside) {
    flat = flat_->split(0, 0);
  } else {
    const int alone = size() + me_;
    flat = flat_->split(shape == Shape::kInside ? alone : members.front(), key);
    const bool is_both = shape == Shape::kBoth;
    across = flat_->split(is_both ? members[static_cast<size_t>(local->rank())] : alone, key);
    if (!is_both) across.reset();
  }
  return std::make_unique<NodesComm>(std::move(flat), std::move(local), std::move(across),
                                     std::move(nodes), me);
}

void NodesComm::adopt(Comm& fresh) {
  auto& other = dynamic_cast<NodesComm&>(fresh);
  flat_ = std::move(other.flat_);
  local_ = std::move(other.local_);
  across_ = std::move(other.across_);
}

// Gloo's threads are gone when the last group of a world has left: an abort that one of them
// learned of late would end the next generation's waits in shared memory.
void NodesComm::leave() {
  across_.reset();
  flat_ = make_solo_comm();
  flat_->abort("this rank has left the group");
}

// Until every node's ranks have met: one rank may have read a large checkpoint first.
void meet_nodes(Comm& local, const NodePlace& place, const Secret& secret, int64_t deadline_ms) {
  const ScopedNoDeadline no_deadline(local);
  local.barrier();
  StoreClient store(place.store, deadline_ms, &secret);
  const auto key = [](int first_rank) { return fmt::format("node/{}", first_rank); };
  if (local.rank() == 0) store.set(key(place.first_rank), "here");
  for (int first = 0; first < place.num_ranks; first += local.size()) {
    std::vector<std::string> next;
    for (int i = 0; i < StoreClient::kMostAhead && first + i * local.size() < place.num_ranks; ++i)
      next.push_back(key(first + i * local.size()));
    store.ask_ahead(next);
    if (!store.wait_for(key(first), kPatientMs))
      throw PeerError("the run has ended before all nodes had come");
  }
}

}  // namespace

std::unique_ptr<Comm> make_nodes_comm(std::unique_ptr<Comm> flat, std::unique_ptr<Comm> local) {
  std::vector<int> nodes;
  for (int r = 0; r < flat->size(); ++r) nodes.push_back(r / local->size());
  const int me = flat->rank();
  std::unique_ptr<Comm> across;
  if (shape_of(nodes) == Shape::kBoth) across = flat->split(local->rank(), me);
  return std::make_unique<NodesComm>(std::move(flat), std::move(local), std::move(across),
                                     std::move(nodes), me);
}

std::unique_ptr<Comm> make_nodes_comm(const std::shared_ptr<ShmWorld>& world, int local_rank,
                                      const NodePlace& place) {
  const auto secret = std::make_shared<const Secret>(Secret::from_file(place.secret_file));
  std::unique_ptr<Comm> local = make_shm_comm(world, local_rank);
  GlooOptions options;
  options.deadline_ms = world->hang_ms();
  meet_nodes(*local, place, *secret, options.deadline_ms);
  options.rank = place.first_rank + local_rank;
  options.num_ranks = place.num_ranks;
  options.store = place.store;
  options.host = place.host;
  options.secret = secret;
  options.on_abort = [world](const std::string& reason, bool has_waited) {
    world->abort(reason, has_waited);
  };
  return make_nodes_comm(make_gloo_comm(options), std::move(local));
}

}  // namespace weft
