// comm/comm.h: one rank's end of a group of ranks that move and add tensors together.
//
// Every rank of a group makes the same calls in the same order. A call blocks until this rank's
// part is done and its buffers may be used again. Calls of one group come from one thread at a
// time; two groups (tensor parallel, data parallel) may be used by two threads at once.
//
// All sums are ours, in every back end: a binary tree over the ranks in their order,
// ((x0 + x1) + (x2 + x3)), a rank without partner going up unchanged. bf16 is added in fp32 and
// rounded once. So the bits of a result depend on nothing but the addends and their order. One
// exception: NCCL adds in an order of its own, unless exact mode asks otherwise (comm/nccl/nccl.h).
//
// A call that does not come to an end throws PeerError: after the deadline (it names the ranks that
// did not come) or on abort (with its reason). Where another rank made another call at the same
// sequence number it throws BugError (it names both ranks and both calls): all ranks run the same
// program, so that no machine or peer is to blame. So it does where a rank has left without it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tensor/dtype.h"

namespace weft {

enum class Reduce { kSum, kMax };

// The number of calls and of bytes that this rank has handed to a group, by operation.
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

  // The ranks that give the same colour form a group, in order of key, then of rank.
  virtual std::unique_ptr<Comm> split(int color, int key) = 0;

  // Ends every call under way and to come, on all ranks of this group and of those split from the
  // same world. From any thread; does not wait.
  virtual void abort(const std::string& reason) = 0;
  virtual bool is_aborted() const = 0;
  // Of every call of this rank, from the next on, in all groups split from the same world.
  virtual void set_deadline_ms(int64_t deadline_ms) = 0;
  virtual int64_t deadline_ms() const = 0;  // that holds now
  // Calls begun while this rank is patient have a day instead of the deadline, in the same groups;
  // see ScopedNoDeadline.
  virtual void set_no_deadline(bool patient) = 0;

  // False where a call returns before it is done: its work is queued on the rank's device, in the
  // queue in use, and can be recorded there.
  virtual bool waits_on_host() const { return true; }
  // Such calls end in no call of ours, so who waits for the device asks here from time to time.
  // Throws PeerError where they cannot end well: a failure, an abort, or more time than is allowed,
  // which the caller knows: the device also computes, and that has no deadline.
  virtual void check_queued(int64_t /*waited_ms*/, int64_t /*allowed_ms*/) {}

  const CommCount& count(CommOp op) const { return counts_[static_cast<int>(op)]; }

 protected:
  CommCount counts_[kNumCommOps];
};

// While it lives, this rank waits in its calls as long as it takes: around work that ranks do apart
// and that may be long on one of them (reading, tokenizing, writing). All ranks of the call are to
// be patient. The death of a rank ends the call all the same; only one that hangs is not found.
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
