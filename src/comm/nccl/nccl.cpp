// comm/nccl/nccl.cpp: NCCL's collectives, and our own sums where bits must not depend on it.
#include "comm/nccl/nccl.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "comm/arena_comm.h"

namespace weft {
namespace {

NcclLibrary* open_library(const NcclOptions& options) {
  std::string why;
  NcclLibrary* library = options.library ? options.library : find_nccl(&why);
  if (!library) {
    throw UserError("ranks on several GPUs communicate through NCCL: " + why,
                    "install NCCL, or set WEFT_COMM=cuda_ipc to let ranks share a GPU");
  }
  return library;
}

class NcclComm : public ArenaComm {
 public:
  NcclComm(std::shared_ptr<Comm> host, Device* device, const DeviceKernels& kernels,
           std::byte* arena, int64_t bytes, const NcclOptions& options)
      : ArenaComm(std::move(host), device, arena, bytes),
        kernels_(kernels),
        options_(options),
        library_(open_library(options)) {
    messages_.reserve(2 * static_cast<size_t>(size()));
    if (options_.is_exact) {
      ensure(
          size() <= kMaxReduced,
          fmt::format("{} ranks in an exact sum; at most {} are supported", size(), kMaxReduced));
      staging_ = std::make_unique<Staging>(device, options_.staging_bytes);
    }
    library_->listen_on(options_.interface);
    connect();
  }

  ~NcclComm() override {
    if (link_ && host_->is_aborted()) link_->abort();
  }

  const char* name() const override { return "nccl"; }
  bool waits_on_host() const override { return false; }

  std::unique_ptr<Comm> split(int color, int key) override {
    return make_nccl_comm(host_->split(color, key), device_, kernels_, arena_, arena_bytes_,
                          options_);
  }

  void leave() override { abort_queued(); }
  void abort_queued() override {
    if (link_) link_->abort();
  }
  void rejoin() override {
    restart_numbers();
    link_.reset();
    connect();
  }

  void check_queued(int64_t waited_ms, int64_t allowed_ms) override {
    std::string failure;
    if (link_->state(&failure) == NcclLink::State::kFailed) give_up(failure);
    if (host_->is_aborted()) give_up("");
    if (waited_ms < allowed_ms) return;
    const std::string message = fmt::format(
        "rank {} of a group of {} waited {:.1f} s on {} for queued calls; {:.1f} s are "
        "allowed",
        rank(), size(), static_cast<double>(waited_ms) / 1000, device_->name(),
        static_cast<double>(allowed_ms) / 1000);
    host_->abort_wait(message);
    give_up(message);
  }

 private:
  void connect() {
    NcclId id{};
    if (rank() == 0) id = library_->make_id();
    host_->broadcast(&id, sizeof id, 0);
    link_ = library_->connect(id, rank(), size());
    wait_until_queued();
  }

  // Device memory, for the others' addends.
  struct Staging {
    Staging(Device* from, int64_t size) : device(from), data(from->allocate(size)), bytes(size) {}
    ~Staging() { device->free(data, bytes); }
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;
    Device* device;
    std::byte* data;
    int64_t bytes;
  };

  void sum_here(void* data, int64_t count, Dtype dtype, Reduce op) override {
    if (!adds_itself(dtype)) {
      link_->all_reduce(data, count, dtype, op, device_->stream());
      return wait_until_queued();
    }
    const int64_t element = dtype_bytes(dtype), line = 64 / element;
    const int64_t share = (count / size() + line) / line * line;
    auto* at = static_cast<std::byte*>(data);
    add_part(at, share, count, at + std::min(count, rank() * share) * element, dtype, op);
    messages_.clear();
    for (int r = 0; r < size(); ++r) {
      add_message(at + rank() * share * element, part(share, count, rank()) * element, r, true);
      add_message(at + r * share * element, part(share, count, r) * element, r, false);
    }
    exchange();
  }

  void scatter_here(const void* in, void* out, int64_t count, Dtype dtype) override {
    if (adds_itself(dtype)) {
      return add_part(static_cast<const std::byte*>(in), count, size() * count,
                      static_cast<std::byte*>(out), dtype, Reduce::kSum);
    }
    link_->reduce_scatter(in, out, count, dtype, device_->stream());
    wait_until_queued();
  }

  void gather_here(const void* in, void* out, int64_t bytes) override {
    link_->all_gather(in, out, bytes, device_->stream());
    wait_until_queued();
  }

  void exchange_here(const void* in, void* out, int64_t bytes) override {
    messages_.clear();
    auto* from = static_cast<std::byte*>(const_cast<void*>(in));
    for (int r = 0; r < size(); ++r) {
      messages_.push_back({from + r * bytes, bytes, r, true});
      messages_.push_back({static_cast<std::byte*>(out) + r * bytes, bytes, r, false});
    }
    exchange();
  }

  void broadcast_here(void* data, int64_t bytes, int root) override {
    link_->broadcast(data, bytes, root, device_->stream());
    wait_until_queued();
  }

  void send_here(const void* data, int64_t bytes, int to) override {
    messages_.clear();
    if (bytes > 0) messages_.push_back({const_cast<void*>(data), bytes, to, true});
    exchange();
  }
  void recv_here(void* data, int64_t bytes, int from) override {
    messages_.clear();
    if (bytes > 0) messages_.push_back({data, bytes, from, false});
    exchange();
  }

  bool adds_itself(Dtype dtype) const { return options_.is_exact && dtype != Dtype::kI64; }

  // `count` elements in parts of `stride`, the last ones shorter or empty: how many part r has.
  static int64_t part(int64_t stride, int64_t count, int r) {
    return std::clamp<int64_t>(count - r * stride, 0, stride);
  }

  void add_message(std::byte* data, int64_t bytes, int peer, bool is_sent) {
    if (bytes > 0 && peer != rank()) messages_.push_back({data, bytes, peer, is_sent});
  }

  // out = the tree over this rank's part of all ranks' data, in pieces: all addends of a piece are
  // in the staging area at the same time. Its own addends are read in place.
  void add_part(const std::byte* data, int64_t stride, int64_t count, std::byte* out, Dtype dtype,
                Reduce op) {
    const int64_t element = dtype_bytes(dtype), line = 64 / element;
    const int64_t piece = staging_->bytes / size() / element / line * line;
    ensure(piece > 0, "the staging area of NCCL's sums is too small");
    auto* from = const_cast<std::byte*>(data);
    for (int64_t first = 0; first < std::min(stride, count); first += piece) {
      const auto length = [&](int r) {
        return std::clamp<int64_t>(part(stride, count, r) - first, 0, piece);
      };
      const int64_t mine = length(rank());
      ReduceTreeArgs args{size(), 1, {}, {}, mine, dtype, op == Reduce::kMax};
      args.out[0] = out + first * element;
      messages_.clear();
      for (int r = 0; r < size(); ++r) {
        add_message(from + (r * stride + first) * element, length(r) * element, r, true);
        std::byte* to = staging_->data + r * piece * element;
        add_message(to, mine * element, r, false);
        args.in[r] = r == rank() ? from + (r * stride + first) * element : to;
      }
      exchange();
      if (mine > 0) kernels_.reduce_tree({nullptr, nullptr, 0, device_->stream()}, args);
    }
  }

  void exchange() {
    if (messages_.empty()) return;
    link_->exchange(messages_.data(), messages_.size(), device_->stream());
    wait_until_queued();
  }

  // Until NCCL has accepted the call, which is usually at once: ranks connect on their first call.
  void wait_until_queued() {
    using Clock = std::chrono::steady_clock;
    constexpr auto kNap = std::chrono::microseconds(50);
    std::string failure;
    const auto begun = Clock::now();
    while (link_->state(&failure) != NcclLink::State::kReady) {
      const auto waited =
          std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun);
      check_queued(waited.count(), host_->deadline_ms());
      std::this_thread::sleep_for(kNap);
    }
  }

  // Propagates the reason to all ranks, unless it came from them; ends what is queued.
  [[noreturn]] void give_up(const std::string& reason) {
    if (!reason.empty()) host_->abort(reason);
    link_->abort();
    if (!reason.empty()) throw PeerError(reason);
    host_->barrier();  // throws, with the reason of the abort
    throw PeerError("a group of ranks on GPUs was aborted");
  }

  const DeviceKernels& kernels_;
  NcclOptions options_;
  NcclLibrary* library_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<NcclLink> link_;  // ends before the staging area does
  std::vector<NcclMessage> messages_;
};

}  // namespace

std::unique_ptr<Comm> make_nccl_comm(std::shared_ptr<Comm> host, Device* device,
                                     const DeviceKernels& kernels, std::byte* arena,
                                     int64_t arena_bytes, const NcclOptions& options) {
  return std::make_unique<NcclComm>(std::move(host), device, kernels, arena, arena_bytes, options);
}

}  // namespace weft
