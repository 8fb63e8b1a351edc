// net/slot_service.h: the slots of a node's ranks, readable from other nodes
// (docs/design/0021-memory-of-nodes.md).
//
// A thread of the node's agent. Those who know the run's secret may ask for texts, layouts and
// bytes of slots that are whole; a long answer is made as fast as it is read, a chunk at a time.
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

 private:
  // What is still to be sent to somebody.
  struct Answer {
    std::shared_ptr<SnapshotSlots> slots;  // null: the bytes are in `text`
    SlotAsk ask;
    std::string text;
    int64_t at = 0, end = 0;
  };
  struct Client {
    Channel channel;
    std::optional<Answer> answer = std::nullopt;
  };
  void work() noexcept;
  void wait();
  bool serve(Client* client);  // whether to keep it
  void obey(Client* client, const Frame& frame);
  void begin_answer(Client* client, const SlotAsk& ask);
  void send_more(Client* client);
  std::shared_ptr<SnapshotSlots> find(const SlotAsk& ask);

  ChannelAcceptor acceptor_;
  const std::string endpoint_;
  int wake_[2];                                              // a pipe: a byte in it ends the thread
  std::mutex mutex_;                                         // guards shown_
  std::map<int64_t, std::shared_ptr<SnapshotSlots>> shown_;  // by node
  std::list<Client> clients_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace weft
