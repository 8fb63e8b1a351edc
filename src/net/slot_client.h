// net/slot_client.h: reads slots of another node from its agent (net/slot_service.h).
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "net/channel.h"
#include "net/secret.h"
#include "net/slot_messages.h"

namespace weft {

// From any thread, one question at a time. PeerError where the agent is gone or does not answer
// within deadline_ms; then also for every later question.
class SlotClient {
 public:
  // is_previous: it reads the slots of the previous layout.
  SlotClient(const std::string& endpoint, const Secret& secret, int64_t deadline_ms,
             bool is_previous = false);

  // None: there is no such slot.
  std::optional<std::string> text(int64_t node, int rank, int64_t step);
  std::optional<std::string> layout(int64_t node, int rank, int64_t step);
  std::optional<std::vector<std::string>> layouts(int64_t node, int64_t step);  // of all its ranks
  std::optional<SlotList> list(int64_t node, int rank);  // none: no such rank
  // Bytes [begin, end), in order; PeerError where there is no such slot.
  using Take = std::function<void(const std::byte* data, size_t begin, size_t size)>;
  void read(int64_t node, int rank, int64_t step, size_t begin, size_t end, const Take& take);

  // Leaves a copy of a slot there; returns when it is whole.
  void put(const SlotPut& put, std::string_view layout, std::string_view text,
           const std::byte* data);
  // Ends whatever waits, from any thread.
  void shut_down() noexcept { channel_.shut_down(); }

 private:
  void send_bytes(std::string_view bytes);
  // The size of what follows; -1: nothing does.
  int64_t ask(SlotAsk what);
  std::string next_bytes(int64_t left);
  std::optional<std::string> ask_text(const SlotAsk& what);
  template <typename Fn>
  auto exchange(const Fn& fn);
  std::optional<std::string> receive_text(const SlotAsk& what);
  void send_slot(const SlotPut& put, std::string_view layout, std::string_view text,
                 const std::byte* data);
  bool receive_data(const SlotAsk& what, const Take& take);  // false: there is no such slot

  std::mutex mutex_;
  const int64_t deadline_ms_;
  const bool is_previous_;
  Channel channel_;
};

}  // namespace weft
