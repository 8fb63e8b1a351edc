// comm/nccl/cuda/nccl_library.cpp: NCCL, loaded on first use.
//
// Loaded and not linked: one GPU needs no NCCL, and a program linked with a library does not start
// without it. Communicators are nonblocking, so that our deadline detects a peer that never
// arrives.
#include "comm/nccl/nccl_library.h"

#include <dlfcn.h>
#include <nccl.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "tensor/cuda/check.h"
#include "tensor/cuda_error.h"

namespace weft {
namespace {

// The functions that we use.
struct Functions {
  decltype(&::ncclGetVersion) get_version;
  decltype(&::ncclGetUniqueId) get_unique_id;
  decltype(&::ncclCommInitRankConfig) init_rank;
  decltype(&::ncclCommFinalize) finalize;
  decltype(&::ncclCommDestroy) destroy;
  decltype(&::ncclCommAbort) abort;
  decltype(&::ncclCommGetAsyncError) get_async_error;
  decltype(&::ncclGetErrorString) get_error_string;
  decltype(&::ncclGetLastError) get_last_error;
  decltype(&::ncclAllReduce) all_reduce;
  decltype(&::ncclReduceScatter) reduce_scatter;
  decltype(&::ncclAllGather) all_gather;
  decltype(&::ncclBroadcast) broadcast;
  decltype(&::ncclSend) send;
  decltype(&::ncclRecv) recv;
  decltype(&::ncclGroupStart) group_start;
  decltype(&::ncclGroupEnd) group_end;
};

template <typename Function>
bool find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(library, name));
  return *function != nullptr;
}

bool find_all(void* library, Functions* f) {
  return find(library, "ncclGetVersion", &f->get_version) &&
         find(library, "ncclGetUniqueId", &f->get_unique_id) &&
         find(library, "ncclCommInitRankConfig", &f->init_rank) &&
         find(library, "ncclCommFinalize", &f->finalize) &&
         find(library, "ncclCommDestroy", &f->destroy) &&
         find(library, "ncclCommAbort", &f->abort) &&
         find(library, "ncclCommGetAsyncError", &f->get_async_error) &&
         find(library, "ncclGetErrorString", &f->get_error_string) &&
         find(library, "ncclGetLastError", &f->get_last_error) &&
         find(library, "ncclAllReduce", &f->all_reduce) &&
         find(library, "ncclReduceScatter", &f->reduce_scatter) &&
         find(library, "ncclAllGather", &f->all_gather) &&
         find(library, "ncclBroadcast", &f->broadcast) && find(library, "ncclSend", &f->send) &&
         find(library, "ncclRecv", &f->recv) && find(library, "ncclGroupStart", &f->group_start) &&
         find(library, "ncclGroupEnd", &f->group_end);
}

ncclDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return ncclFloat32;
    case Dtype::kBf16:
      return ncclBfloat16;
    case Dtype::kF16:
      return ncclFloat16;
    case Dtype::kF64:
      return ncclFloat64;
    case Dtype::kI64:
      return ncclInt64;
    default:
      throw BugError(fmt::format("cannot sum {} over ranks", dtype_name(dtype)));
  }
}

cudaStream_t stream_of(void* stream) { return static_cast<cudaStream_t>(stream); }

std::string describe(const Functions& f, const char* what, ncclResult_t result, ncclComm_t comm) {
  int gpu = 0;
  cudaGetDevice(&gpu);
  return fmt::format("NCCL failed in {} on {}: {} ({})", what, name_gpu(gpu),
                     f.get_error_string(result), f.get_last_error(comm));
}

class Link : public NcclLink {
 public:
  Link(const Functions& functions, const NcclId& id, int rank, int num_ranks) : f_(functions) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclUniqueId unique;
    static_assert(sizeof unique == sizeof id);
    std::memcpy(&unique, &id, sizeof id);
    check(f_.init_rank(&comm_, num_ranks, unique, rank, &config), "ncclCommInitRank");
  }
  ~Link() override {
    if (comm_ && std::uncaught_exceptions() == 0 && ends_in_peace()) {
      f_.destroy(comm_);
    } else {
      begin_abort();
    }
    wait_for_abort();
  }

  State state(std::string* failure) override {
    if (!comm_) {
      *failure = "an NCCL communicator was used after its end";
      return State::kFailed;
    }
    ncclResult_t result = ncclSuccess;
    const ncclResult_t asked = f_.get_async_error(comm_, &result);
    if (asked != ncclSuccess) result = asked;
    if (result == ncclSuccess) return State::kReady;
    if (result == ncclInProgress) return State::kUnderWay;
    *failure = describe(f_, call_, result, comm_);
    return State::kFailed;
  }
  void abort() override { begin_abort(); }

  void all_reduce(void* data, int64_t count, Dtype dtype, Reduce op, void* stream) override {
    check(f_.all_reduce(data, data, static_cast<size_t>(count), type_of(dtype),
                        op == Reduce::kMax ? ncclMax : ncclSum, open(), stream_of(stream)),
          "ncclAllReduce");
  }
  void reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype,
                      void* stream) override {
    check(f_.reduce_scatter(in, out, static_cast<size_t>(count), type_of(dtype), ncclSum, open(),
                            stream_of(stream)),
          "ncclReduceScatter");
  }
  void all_gather(const void* in, void* out, int64_t bytes, void* stream) override {
    check(f_.all_gather(in, out, static_cast<size_t>(bytes), ncclUint8, open(), stream_of(stream)),
          "ncclAllGather");
  }
  void broadcast(void* data, int64_t bytes, int root, void* stream) override {
    check(f_.broadcast(data, data, static_cast<size_t>(bytes), ncclUint8, root, open(),
                       stream_of(stream)),
          "ncclBroadcast");
  }
  void exchange(const NcclMessage* messages, size_t count, void* stream) override {
    check(f_.group_start(), "ncclGroupStart");
    ncclResult_t first = ncclSuccess;  // a group is always ended
    for (const NcclMessage* m = messages; m != messages + count; ++m) {
      const auto bytes = static_cast<size_t>(m->bytes);
      const ncclResult_t result =
          m->is_sent ? f_.send(m->data, bytes, ncclUint8, m->peer, open(), stream_of(stream))
                     : f_.recv(m->data, bytes, ncclUint8, m->peer, open(), stream_of(stream));
      if (first == ncclSuccess && result != ncclInProgress) first = result;
    }
    const ncclResult_t ended = f_.group_end();
    check(first == ncclSuccess ? ended : first, "ncclSend and ncclRecv");
  }

 private:
  ncclComm_t open() const {
    if (!comm_) throw PeerError("an NCCL communicator was used after its end");
    return comm_;
  }

  void check(ncclResult_t result, const char* what) {
    call_ = what;
    if (result != ncclSuccess && result != ncclInProgress) {
      cuda::fail_if_lost(what);
      throw PeerError(describe(f_, what, result, comm_),
                      "NCCL_DEBUG=INFO makes NCCL say more; GPU errors are in the driver's log");
    }
  }

  // On a thread of its own: ncclCommAbort ends the work on the GPU at once, but returns only when
  // that is idle and no captured graph has calls of this communicator, and two communicators whose
  // work waits for each other must both be aborted before either call can return.
  void begin_abort() {
    if (!comm_) return;
    std::promise<void> done;
    aborted_ = done.get_future();
    std::thread([f = f_, comm = std::exchange(comm_, nullptr), done = std::move(done)]() mutable {
      f.abort(comm);
      done.set_value();
    }).detach();
  }

  // With a limit: what NCCL waits for may be gone. It then keeps its memory.
  void wait_for_abort() {
    constexpr auto kLongest = std::chrono::seconds(5);
    if (aborted_.valid() && aborted_.wait_for(kLongest) != std::future_status::ready)
      log_warning("NCCL has not ended an aborted communicator within {} s", kLongest.count());
  }

  // Waits until queued work is done and the peers have reached this point. With a limit: one may be
  // gone.
  bool ends_in_peace() {
    constexpr auto kNap = std::chrono::milliseconds(1);
    constexpr int kNaps = 5000;
    const ncclResult_t begun = f_.finalize(comm_);
    if (begun != ncclSuccess && begun != ncclInProgress) return false;
    std::string failure;
    for (int i = 0; i < kNaps; ++i) {
      const State now = state(&failure);
      if (now != State::kUnderWay) return now == State::kReady;
      std::this_thread::sleep_for(kNap);
    }
    return false;
  }

  const Functions& f_;
  ncclComm_t comm_ = nullptr;
  const char* call_ = "";  // the last one
  std::future<void> aborted_;
};

class Library : public NcclLibrary {
 public:
  explicit Library(const Functions& functions) : f_(functions) {}

  std::string version() const override {
    int v = 0;
    f_.get_version(&v);
    return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100);
  }
  void listen_on(const std::string& interface) override {
    ::setenv("NCCL_SOCKET_IFNAME", ("=" + interface).c_str(), 0);
  }
  NcclId make_id() override {
    ncclUniqueId unique;
    const ncclResult_t result = f_.get_unique_id(&unique);
    if (result != ncclSuccess) throw PeerError(describe(f_, "ncclGetUniqueId", result, nullptr));
    NcclId id;
    std::memcpy(&id, &unique, sizeof id);
    return id;
  }
  std::unique_ptr<NcclLink> connect(const NcclId& id, int rank, int num_ranks) override {
    return std::make_unique<Link>(f_, id, rank, num_ranks);
  }

 private:
  Functions f_;
};

struct Found {
  std::unique_ptr<Library> library;
  std::string why_none;
};

Found load() {
  // Groups of two axes are used concurrently, on two streams. NCCL then follows the order of the
  // host's calls, which is the same on all ranks: no rank waits in one group for a rank that waits
  // in the other.
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  void* handle = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!handle) return {nullptr, ::dlerror()};  // it names the file
  Functions functions;
  if (!find_all(handle, &functions)) return {nullptr, "libnccl.so.2 is older than 2.14"};
  return {std::make_unique<Library>(functions), ""};
}

}  // namespace

NcclLibrary* find_nccl(std::string* why_none) {
  static const Found found = load();  // stays loaded: its threads may outlive us
  *why_none = found.why_none;
  return found.library.get();
}

}  // namespace weft
