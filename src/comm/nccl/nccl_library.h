// comm/nccl/nccl_library.h: the part of NCCL that we use, without its header: the library where
// this machine has it, or the tests' fake.
//
// A call queues work on a stream and returns; nothing here blocks. Poll state() to learn whether a
// call was accepted or a link is established.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "comm/comm.h"

namespace weft {

struct NcclId {
  std::byte bytes[128];
};

// A part of an exchange: to or from a peer.
struct NcclMessage {
  void* data;
  int64_t bytes;
  int peer;
  bool is_sent;
};

// This rank's handle on a communicator. PeerError where a call fails, naming host and GPU.
class NcclLink {
 public:
  virtual ~NcclLink() = default;  // finalized where nothing failed; else aborted

  enum class State { kReady, kUnderWay, kFailed };
  virtual State state(std::string* failure) = 0;  // failure: where kFailed, what and where
  // Ends queued and running work; calls after it throw. Returns at once; the destructor waits for
  // what the library still has to do, and it waits for captured graphs of its calls to be gone.
  virtual void abort() = 0;

  virtual void all_reduce(void* data, int64_t count, Dtype dtype, Reduce op, void* stream) = 0;
  virtual void reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype,
                              void* stream) = 0;
  virtual void all_gather(const void* in, void* out, int64_t bytes, void* stream) = 0;
  virtual void broadcast(void* data, int64_t bytes, int root, void* stream) = 0;
  virtual void exchange(const NcclMessage* messages, size_t count, void* stream) = 0;
};

class NcclLibrary {
 public:
  virtual ~NcclLibrary() = default;
  virtual std::string version() const = 0;  // "2.28.9"
  // The network interface through which ranks find each other; before the first id.
  virtual void listen_on(const std::string& interface) = 0;
  virtual NcclId make_id() = 0;
  virtual std::unique_ptr<NcclLink> connect(const NcclId& id, int rank, int num_ranks) = 0;
};

// Null where the build has no CUDA or the machine no NCCL; why_none then says which.
NcclLibrary* find_nccl(std::string* why_none);

}  // namespace weft
