// comm/arena_comm.cpp: device or host data, and whether all ranks make the same call.
#include "comm/arena_comm.h"

#include "base/error.h"

namespace weft {

ArenaComm::ArenaComm(std::shared_ptr<Comm> host, Device* device, std::byte* arena,
                     int64_t arena_bytes)
    : host_(std::move(host)),
      device_(device),
      arena_(arena),
      arena_bytes_(arena_bytes),
      calls_(static_cast<size_t>(host_->size())) {}

bool ArenaComm::is_here(const void* data) const {
  const auto* at = static_cast<const std::byte*>(data);
  return at >= arena_ && at < arena_ + arena_bytes_;
}

void ArenaComm::note(CommOp op, int64_t bytes) {
  counts_[static_cast<int>(op)].calls += 1;
  counts_[static_cast<int>(op)].bytes += bytes;
}

void ArenaComm::compare(CommCall call, const void* data) {
  call.location = data ? offset(data) : 0;
  call.number = ++number_;
  get_ready();
  host_->all_gather(&call, calls_.data(), sizeof call);
  for (size_t m = 1; m < calls_.size(); ++m) {
    if (is_same(calls_[0], calls_[m])) continue;
    const std::string message = fmt::format(
        "members 0 and {} made different calls at number {} of their group: member 0 {}, member {} "
        "{}",
        m, call.number, describe(calls_[0]), m, describe(calls_[m]));
    host_->abort(message);
    throw BugError(message);
  }
}

void ArenaComm::all_reduce(void* data, int64_t count, Dtype dtype, Reduce op) {
  const int64_t bytes = count * dtype_bytes(dtype);
  note(CommOp::kAllReduce, bytes);
  if (!is_here(data)) return host_->all_reduce(data, count, dtype, op);
  compare({CommOp::kAllReduce, dtype, op, 0, bytes, 0, 0}, data);
  if (count > 0) sum_here(data, count, dtype, op);
}

void ArenaComm::reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype) {
  const int64_t bytes = count * dtype_bytes(dtype);
  note(CommOp::kReduceScatter, size() * bytes);
  if (!is_here(in)) return host_->reduce_scatter(in, out, count, dtype);
  compare({CommOp::kReduceScatter, dtype, Reduce::kSum, 0, bytes, 0, 0}, in);
  if (count > 0) scatter_here(in, out, count, dtype);
}

void ArenaComm::all_gather(const void* in, void* out, int64_t bytes) {
  note(CommOp::kAllGather, bytes);
  if (!is_here(in)) return host_->all_gather(in, out, bytes);
  compare({CommOp::kAllGather, Dtype::kU8, Reduce::kSum, 0, bytes, 0, 0}, in);
  if (bytes > 0) gather_here(in, out, bytes);
}

void ArenaComm::all_to_all(const void* in, void* out, int64_t bytes) {
  note(CommOp::kAllToAll, size() * bytes);
  if (!is_here(in)) return host_->all_to_all(in, out, bytes);
  compare({CommOp::kAllToAll, Dtype::kU8, Reduce::kSum, 0, bytes, 0, 0}, in);
  if (bytes > 0) exchange_here(in, out, bytes);
}

void ArenaComm::broadcast(void* data, int64_t bytes, int root) {
  note(CommOp::kBroadcast, bytes);
  if (!is_here(data)) return host_->broadcast(data, bytes, root);
  compare({CommOp::kBroadcast, Dtype::kU8, Reduce::kSum, root, bytes, 0, 0}, data);
  if (bytes > 0) broadcast_here(data, bytes, root);
}

void ArenaComm::send(const void* data, int64_t bytes, int to) {
  note(CommOp::kSend, bytes);
  return is_here(data) ? send_here(data, bytes, to) : host_->send(data, bytes, to);
}

void ArenaComm::recv(void* data, int64_t bytes, int from) {
  note(CommOp::kRecv, bytes);
  return is_here(data) ? recv_here(data, bytes, from) : host_->recv(data, bytes, from);
}

void ArenaComm::barrier() {
  note(CommOp::kBarrier, 0);
  device_->wait();
  compare({CommOp::kBarrier, Dtype::kU8, Reduce::kSum, 0, 0, 0, 0}, nullptr);
}

}  // namespace weft
