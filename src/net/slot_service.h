// net/slot_service.h: the slots of a node's ranks, readable from other nodes
// (docs/design/0021-memory-of-nodes.md).
//
// A thread of the node's agent. Those who know the run's secret may ask for texts, layouts and
// bytes of slots that are whole; a long answer is made as fast as it is read, a chunk at a time.
// They may also leave copies of the slots of one other node.
#pragma once

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
  // Listens on that address, at any free port.
  SlotService(const std::string& host, const Secret& secret);
  ~SlotService();
  SlotService(const SlotService&) = delete;
  SlotService& operator=(const SlotService&) = delete;

  std::string endpoint() const { return endpoint_; }
  // These are the slots of that node from here on; null: it has none.
  void show(int64_t node, std::shared_ptr<SnapshotSlots> slots);
  // The same with copies of another node's slots, which its ranks write here.
  void keep(int64_t node, std::shared_ptr<SnapshotSlots> copies);
  // The run goes back to that step: copies of later ones are dropped, and what was sent before and
  // arrives late is refused.
  void go_back(int64_t step);

 private:
  // What is still to be sent to somebody.
  struct Answer {
    std::shared_ptr<SnapshotSlots> slots;  // null: the bytes are in `text`
    SlotAsk ask;
    std::string text;
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
    bool has_more = false;  // it may have sent more than was looked at
  };
  void work() noexcept;
  void accept();
  void wait();
  bool serve(Client* client);  // whether to keep it
  void obey(Client* client, const Frame& frame);
  void begin_answer(Client* client, const SlotAsk& ask);
  void send_more(Client* client);
  void begin_taking(Client* client, const SlotPut& put);
  void take(Client* client, std::string_view bytes);
  static std::string list(SnapshotSlots& slots, int rank);
  std::shared_ptr<SnapshotSlots> find(const SlotAsk& ask);

  ChannelAcceptor acceptor_;
  const std::string endpoint_;
  int wake_[2];                                              // a pipe: a byte in it ends the thread
  std::mutex mutex_;                                         // guards shown_ and kept_
  std::map<int64_t, std::shared_ptr<SnapshotSlots>> shown_;  // by node
  std::shared_ptr<SnapshotSlots> kept_;                      // those of them that may be written
  int64_t kept_node_ = -1, epoch_ = 0;                       // epoch_: of those who may write
  std::list<Client> clients_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace weft
