// comm/comm.h: one rank's handle on a group of ranks that move and add tensors together.
//
// Every rank of a group makes the same calls in the same order. A call blocks until this rank's
// part is done and its buffers may be used again. Calls of one group come from one thread at a
// time; two groups (tensor parallel, data parallel) may be used by two threads at once.
//
// All sums are ours, in every backend: a binary tree over the ranks in their order, ((x0 + x1) +
// (x2 + x3)), a rank without a partner is passed up unchanged. bf16 is added in fp32 and rounded
// once. So the bits of a result depend on nothing but the addends and their order. One exception:
// NCCL adds in its own order, except in exact mode (comm/nccl/nccl.h).
//
// A call that cannot complete throws PeerError: after the deadline (naming the missing ranks) or on
// abort (with its reason). Where another rank made a different call at the same sequence number it
// throws BugError (naming both ranks and both calls): all ranks run the same program, so no machine
// or peer is to blame. The same holds where a rank has exited without making the call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tensor/dtype.h"

namespace weft {

enum class Reduce { kSum, kMax };

// The number of calls and bytes that this rank has passed to a group, by operation.
struct CommCount {
  int64_t calls = 0, bytes = 0;
};
enum class CommOp {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kAllToAll,
  kBroadcast,
  kSend,
  kRecv,
  kBarrier,
};
inline constexpr int kNumCommOps = 8;
const char* comm_op_name(CommOp op);

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const char* name() const = 0;  // "solo", "shm", "gloo", "cuda_ipc", "nccl"

  // data (count) becomes the sum or maximum over the ranks. fp32, bf16, fp64 and int64.
  virtual void all_reduce(void* data, int64_t count, Dtype dtype, Reduce op = Reduce::kSum) = 0;
  // in (size * count) -> out (count): part `rank` of the sum. out may be in + rank * count.
  virtual void reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype) = 0;
  // in (bytes) -> out (size * bytes), in the order of the ranks. in may be out + rank * bytes.
  virtual void all_gather(const void* in, void* out, int64_t bytes) = 0;
  // Part r of in (size * bytes) goes to rank r; part r of out comes from rank r. Not in place.
  virtual void all_to_all(const void* in, void* out, int64_t bytes) = 0;
  virtual void broadcast(void* data, int64_t bytes, int root) = 0;
  virtual void send(const void* data, int64_t bytes, int to) = 0;
  virtual void recv(void* data, int64_t bytes, int from) = 0;
  virtual void barrier() = 0;

  // Ranks with the same colour form a group, in order of key, then of rank.
  virtual std::unique_ptr<Comm> split(int color, int key) = 0;

  // Becomes `fresh`, a group of the same kind and size: users keep their pointer to this one. After
  // a failure, when no call is running; counts stay. BugError where a backend cannot.
  virtual void adopt(Comm& fresh);
  // After a failure. Of a group over several nodes, leave: its connections and their threads are
  // gone, and its calls fail until it adopts another one. Of ranks on GPUs, leave: its work on this
  // rank's GPU is given up, and nothing of the others is mapped or connected any more; returns when
  // that has begun, so that two groups whose work depends on each other can both be left. rejoin:
  // with the same ranks or their
  // replacements, when the host group below was rebuilt; collective. Captured graphs of its calls
  // are void, and must be gone by then.
  virtual void leave() {}
  virtual void rejoin() {}
  // After a failure, before leave(): what is queued on this rank's GPU no longer waits for other
  // ranks. Until then whatever waits for the GPU, which freeing its memory does, may not return.
  virtual void abort_queued() {}

  // Ends every current and future call, on all ranks of this group and of those split from the same
  // world. Thread-safe; does not wait.
  virtual void abort(const std::string& reason) = 0;
  // The same where this rank has waited for others until its deadline: whoever supervises the ranks
  // looks for one that hangs.
  virtual void abort_wait(const std::string& reason) { this->abort(reason); }
  virtual bool is_aborted() const = 0;
  // For every call of this rank, from the next one, in all groups split from the same world.
  virtual void set_deadline_ms(int64_t deadline_ms) = 0;
  virtual int64_t deadline_ms() const = 0;  // currently in effect
  // Calls begun while this is on may take a day instead of the deadline, in the same groups; see
  // ScopedNoDeadline.
  virtual void set_no_deadline(bool patient) = 0;
  // For this group alone and for good: its ranks may work for long between calls, while others of
  // the same world keep their deadline. Every rank of the group calls it.
  virtual void drop_deadline() = 0;

  // False where a call returns before it is done: its work is queued on the rank's device, in the
  // queue in use, and can be captured there.
  virtual bool waits_on_host() const { return true; }
  // Queued calls do not fail in any call of ours, so whoever waits for the device polls this.
  // Throws PeerError where they cannot complete: a failure, an abort, or more than the allowed
  // time, which the caller passes: the device also computes, and that has no deadline.
  virtual void check_queued(int64_t /*waited_ms*/, int64_t /*allowed_ms*/) {}

  const CommCount& count(CommOp op) const { return counts_[static_cast<int>(op)]; }

 protected:
  CommCount counts_[kNumCommOps];
};

// Suspends this rank's deadline: around work that may take long on a single rank (reading,
// tokenizing, writing). All ranks of the call must use it. A rank's death still ends the call; only
// a hang goes undetected.
class ScopedNoDeadline {
 public:
  explicit ScopedNoDeadline(Comm& comm) : comm_(comm) { comm_.set_no_deadline(true); }
  ~ScopedNoDeadline() { comm_.set_no_deadline(false); }
  ScopedNoDeadline(const ScopedNoDeadline&) = delete;
  ScopedNoDeadline& operator=(const ScopedNoDeadline&) = delete;

 private:
  Comm& comm_;
};

std::unique_ptr<Comm> make_solo_comm();

}  // namespace weft
