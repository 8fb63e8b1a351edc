// net/slot_service.h: the slots of a node's ranks, readable from other nodes
// (docs/design/0021-memory-of-nodes.md).
//
// A thread of the node's agent. Those who know the run's secret may ask for texts, layouts and
// bytes of slots that are whole; a long answer is made as fast as it is read, a chunk at a time.
// They may also leave copies of the slots of one other node. One that takes nothing of its answer,
// or sends nothing more of its copy, for stall_ms is gone: its connection ends.
#pragma once

#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "net/channel_acceptor.h"
#include "net/slot_messages.h"
#include "net/snapshot_slots.h"

namespace weft {

class SlotService {
 public:
  // More than ranks wait for the next bytes (train/slot_deadline.h).
  static constexpr int64_t kStallMs = 10'000;
  // Listens on that address, at any free port.
  SlotService(const std::string& host, const Secret& secret, int64_t stall_ms = kStallMs);
  ~SlotService();
  SlotService(const SlotService&) = delete;
  SlotService& operator=(const SlotService&) = delete;

  std::string endpoint() const { return endpoint_; }
  // These are the slots of that node from here on; null: it has none.
  void show(int64_t node, std::shared_ptr<SnapshotSlots> slots);
  // The same with copies of another node's slots, which its ranks write here: those who connect
  // from here on. Null: it keeps none.
  void keep(int64_t node, std::shared_ptr<SnapshotSlots> copies);
  // By node: the slots of the previous layout, from which the next one is loaded; empty: none.
  void show_previous(std::map<int64_t, std::shared_ptr<SnapshotSlots>> slots);
  // The run goes back to that step: copies of later ones are dropped, and what was sent before and
  // arrives late is refused.
  void go_back(int64_t step);

 private:
  using Clock = std::chrono::steady_clock;
  // What is still to be sent to somebody.
  struct Answer {
    std::shared_ptr<SnapshotSlots> slots;  // null: the bytes are in `text`
    std::optional<SnapshotSlots::View> view;
    int rank = 0;
    std::shared_ptr<const std::string> text;
    int64_t at = 0, end = 0;
  };
  // A copy that arrives.
  struct Taking {
    std::shared_ptr<SnapshotSlots> copies;
    SlotPut put;
    std::string layout, text;
    std::byte* to = nullptr;  // null: layout and text are not there yet
    int64_t at = 0;           // of the bytes
  };
  struct Client {
    Channel channel;
    std::optional<Answer> answer = std::nullopt;
    std::optional<Taking> taking = std::nullopt;
    int64_t epoch = 0;
    bool has_more = false;                   // it may have sent more than was looked at
    Clock::time_point moved = Clock::now();  // when it last took or sent something
  };
  void work() noexcept;
  void accept();
  void wait();
  bool serve(Client* client);  // whether to keep it
  void note_failure(const std::string& why);
  void advance(Client* client);
  void check_progress(Client* client, size_t queued_before) const;
  void obey(Client* client, const Frame& frame);
  void begin_answer(Client* client, const SlotAsk& ask);
  void send_more(Client* client);
  void begin_taking(Client* client, const SlotPut& put);
  void take(Client* client, std::string_view bytes);
  static std::string list(SnapshotSlots& slots, int rank);
  std::shared_ptr<const std::string> layouts(SnapshotSlots& slots, int64_t step);
  std::shared_ptr<const std::string> text_of(SnapshotSlots& slots, const SlotAsk& ask,
                                             const std::optional<SnapshotSlots::View>& view);
  std::shared_ptr<SnapshotSlots> find(const SlotAsk& ask);

  ChannelAcceptor acceptor_;
  const std::string endpoint_;
  const int64_t stall_ms_;
  int wake_[2];       // a pipe: a byte in it ends the thread
  std::mutex mutex_;  // guards shown_, previous_ and kept_
  std::map<int64_t, std::shared_ptr<SnapshotSlots>> shown_, previous_;  // by node
  std::shared_ptr<SnapshotSlots> kept_;  // those of them that may be written
  int64_t kept_node_ = -1, epoch_ = 0;   // epoch_: of those who may write
  std::list<Client> clients_;
  std::shared_ptr<const std::string> layouts_;  // the last answer's: hundreds of readers share it
  bool is_ending_ = false, has_warned_ = false;
  std::thread thread_;
};

}  // namespace weft
