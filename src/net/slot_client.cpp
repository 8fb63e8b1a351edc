// net/slot_client.cpp: a question, a size, then bytes.
#include "net/slot_client.h"

#include <algorithm>

#include "base/error.h"

namespace weft {
namespace {

constexpr int64_t kMaxText = int64_t{1} << 30;  // layouts of a node's ranks

}  // namespace

SlotClient::SlotClient(const std::string& endpoint, const Secret& secret, int64_t deadline_ms,
                       bool is_previous)
    : deadline_ms_(deadline_ms),
      is_previous_(is_previous),
      channel_(Channel::connect(parse_endpoint(endpoint), secret, kSlotIdentity,
                                slot_message_bounds(), deadline_ms)) {}

int64_t SlotClient::ask(SlotAsk what) {
  what.is_previous = is_previous_ ? 1 : 0;
  channel_.send(static_cast<uint8_t>(SlotMessage::kAsk), what.write(), deadline_ms_);
  const Frame answer = channel_.receive(deadline_ms_);
  if (answer.kind != static_cast<uint8_t>(SlotMessage::kSize))
    throw PeerError(fmt::format("{}: an answer without its size", channel_.peer()));
  return read_slot_number(answer.payload);
}

std::string SlotClient::next_bytes(int64_t left) {
  Frame frame = channel_.receive(deadline_ms_);
  const auto size = static_cast<int64_t>(frame.payload.size());
  if (frame.kind != static_cast<uint8_t>(SlotMessage::kBytes) || size == 0 || size > left)
    throw PeerError(fmt::format("{}: not the bytes that were asked for", channel_.peer()));
  return std::move(frame.payload);
}

// What answers a question that has failed may still come: nothing more is asked on this channel.
template <typename Fn>
auto SlotClient::exchange(const Fn& fn) {
  const std::lock_guard lock(mutex_);
  try {
    return fn();
  } catch (...) {
    channel_.shut_down();
    throw;
  }
}

std::optional<std::string> SlotClient::ask_text(const SlotAsk& what) {
  return exchange([&] { return receive_text(what); });
}

std::optional<std::string> SlotClient::receive_text(const SlotAsk& what) {
  const int64_t size = ask(what);
  if (size < 0) return std::nullopt;
  if (size > kMaxText)
    throw PeerError(fmt::format("{}: a text of {} bytes", channel_.peer(), size));
  std::string text;
  while (static_cast<int64_t>(text.size()) < size)
    text += next_bytes(size - static_cast<int64_t>(text.size()));
  return text;
}

std::optional<std::string> SlotClient::text(int64_t node, int rank, int64_t step) {
  return ask_text({node, rank, step, SlotAsk::kText, 0, 0});
}

std::optional<std::string> SlotClient::layout(int64_t node, int rank, int64_t step) {
  return ask_text({node, rank, step, SlotAsk::kLayout, 0, 0});
}

std::optional<std::vector<std::string>> SlotClient::layouts(int64_t node, int64_t step) {
  const auto text = ask_text({node, 0, step, SlotAsk::kLayouts, 0, 0});
  return text ? std::optional(read_layouts(*text)) : std::nullopt;
}

std::optional<SlotList> SlotClient::list(int64_t node, int rank) {
  const auto text = ask_text({node, rank, 0, SlotAsk::kList, 0, 0});
  return text ? std::optional(SlotList::read(*text)) : std::nullopt;
}

void SlotClient::send_bytes(std::string_view bytes) {
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kSlotChunk)))
    channel_.send(static_cast<uint8_t>(SlotMessage::kBytes), bytes.substr(0, kSlotChunk),
                  deadline_ms_);
}

void SlotClient::put(const SlotPut& put, std::string_view layout, std::string_view text,
                     const std::byte* data) {
  exchange([&] { send_slot(put, layout, text, data); });
}

void SlotClient::send_slot(const SlotPut& put, std::string_view layout, std::string_view text,
                           const std::byte* data) {
  channel_.send(static_cast<uint8_t>(SlotMessage::kPut), put.write(), deadline_ms_);
  send_bytes(layout);
  send_bytes(text);
  send_bytes({reinterpret_cast<const char*>(data), static_cast<size_t>(put.bytes)});
  const Frame answer = channel_.receive(deadline_ms_);
  if (answer.kind != static_cast<uint8_t>(SlotMessage::kSize) ||
      read_slot_number(answer.payload) != 0)
    throw PeerError(fmt::format("{}: a copy of a slot was not taken", channel_.peer()));
}

void SlotClient::read(int64_t node, int rank, int64_t step, size_t begin, size_t end,
                      const Take& take) {
  const SlotAsk what{
      node, rank, step, SlotAsk::kData, static_cast<int64_t>(begin), static_cast<int64_t>(end)};
  if (exchange([&] { return receive_data(what, take); })) return;
  throw PeerError(fmt::format("{}: it has no snapshot of step {} of rank {} of node {}",
                              channel_.peer(), step, rank, node));
}

bool SlotClient::receive_data(const SlotAsk& what, const Take& take) {
  const int64_t size = ask(what);
  if (size < 0) return false;
  if (size != what.end - what.begin)
    throw PeerError(fmt::format("{}: not as many bytes as were asked for", channel_.peer()));
  for (int64_t at = what.begin; at < what.end;) {
    const std::string bytes = next_bytes(what.end - at);
    take(reinterpret_cast<const std::byte*>(bytes.data()), static_cast<size_t>(at), bytes.size());
    at += static_cast<int64_t>(bytes.size());
  }
  return true;
}

}  // namespace weft
