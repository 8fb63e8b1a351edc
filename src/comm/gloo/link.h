// comm/gloo/link.h: how the members of a group meet over TCP, and move bytes between their buffers.
//
// Members write each other headers: what they are about to do, and the data itself where it is
// little. A call begins with a header from everyone to everyone; all compare all with that of
// member 0, so all find the same difference, and only then are payloads sent, of sizes that both
// sides know. Headers of a pair keep their order, so a member that expects one kind of header and
// gets another knows what its peer does instead. A message that arrives before its recv is kept.
//
// Gloo always has a posted buffer for every peer's next header: a send completes while the reader
// still computes.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/call.h"
#include "comm/gloo/world.h"

namespace gloo {
class Context;
namespace transport {
class UnboundBuffer;
}
}  // namespace gloo

namespace weft {

class GlooLink : public GlooWaiter {
 public:
  // Data of at most this many bytes goes with the header.
  static constexpr int64_t kLittleBytes = 4 << 10;

  // ranks: the members' numbers in the world, in the group's order; me: this rank's index there.
  // id: the same for all members, unique to the group.
  GlooLink(std::shared_ptr<GlooWorld> world, std::string id, std::vector<int> ranks, int me);
  ~GlooLink() override;
  GlooLink(const GlooLink&) = delete;
  GlooLink& operator=(const GlooLink&) = delete;

  const std::shared_ptr<GlooWorld>& world() const { return world_; }
  const std::string& id() const { return id_; }
  int size() const { return static_cast<int>(ranks_.size()); }
  int me() const { return me_; }
  int world_rank(int member) const { return ranks_[static_cast<size_t>(member)]; }
  uint32_t number() const { return number_; }

  // Begins a call. Member m is sent the bytes at data + m * stride.
  void meet(CommCall call, const void* data, int64_t bytes, int64_t stride);
  const char* from(int member) const;  // what that member sent to this one

  // The payload of the current call: for each member what is sent to it and received from it.
  struct Route {
    const char* out = nullptr;
    int64_t out_bytes = 0;
    char* in = nullptr;
    int64_t in_bytes = 0;
  };
  void exchange(const std::vector<Route>& routes);

  void send(const void* data, int64_t bytes, int to);
  void recv(void* data, int64_t bytes, int from);

  void wake() override;
  void drop_deadline() { has_deadline_ = false; }

 private:
  using Clock = std::chrono::steady_clock;
  using Buffer = gloo::transport::UnboundBuffer;
  enum class Way { kSend, kRecv };
  struct Peer;

  int64_t deadline_ms() const { return has_deadline_ ? world_->deadline_ms() : kPatientMs; }
  Peer& peer(int member) const { return *peers_[static_cast<size_t>(member)]; }
  void connect();
  std::shared_ptr<Buffer> buffer(const void* data, int64_t bytes) const;
  void begin(const CommCall& call);
  void write(int member, const CommCall& call, const void* data, int64_t bytes);
  void read(int member);       // the next header
  void read_call(int member);  // the next that is not a message; messages are kept
  void give_place(int member) noexcept;
  void compare_calls();
  void post(int member, Buffer* buffer, Way way, uint64_t slot, int64_t bytes);
  void wait(int member, Buffer* buffer, Way way);
  void flush() noexcept;

  std::string latest_call(int member) const;
  [[noreturn]] void fail_difference(int a, const CommCall& call_a, int b, const CommCall& call_b);
  [[noreturn]] void fail_lost(int member, const std::string& why);
  [[noreturn]] void fail_deadline(int member, double waited_s);
  [[noreturn]] void fail(const std::string& message, const std::string& hint = "");
  [[noreturn]] void fail_bug(const std::string& message);  // a bug of ours

  std::shared_ptr<GlooWorld> world_;
  std::string id_;
  std::vector<int> ranks_;
  int me_;
  std::shared_ptr<gloo::Context> context_;
  std::vector<std::shared_ptr<Peer>> peers_;
  uint32_t number_ = 0;
  CommCall call_{};
  bool is_meeting_ = false;
  bool has_deadline_ = true;
  Clock::time_point begun_;
  std::mutex mutex_;  // guards waiting_
  Buffer* waiting_ = nullptr;
};

}  // namespace weft
