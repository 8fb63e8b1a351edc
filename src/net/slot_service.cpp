// net/slot_service.cpp: one thread, many readers.
#include "net/slot_service.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace weft {
namespace {

constexpr size_t kMaxClients = 4096;
constexpr int kPollMs = 1000;

void queue(Channel* to, SlotMessage kind, std::string_view payload) {
  to->queue(static_cast<uint8_t>(kind), payload);
}

}  // namespace

SlotService::SlotService(const std::string& host, const Secret& secret)
    : acceptor_(host, "0", secret, kSlotIdentity, slot_message_bounds()),
      endpoint_(acceptor_.endpoint()) {
  if (::pipe2(wake_, O_CLOEXEC | O_NONBLOCK) != 0)
    throw RunError("cannot create a pipe for the slot service");
  thread_ = std::thread([this] { work(); });
}

SlotService::~SlotService() {
  [[maybe_unused]] const ssize_t put = ::write(wake_[1], "", 1);
  thread_.join();
  ::close(wake_[0]);
  ::close(wake_[1]);
}

void SlotService::show(int64_t node, std::shared_ptr<SnapshotSlots> slots) {
  const std::lock_guard lock(mutex_);
  shown_.erase(node);
  if (slots) shown_[node] = std::move(slots);
}

void SlotService::work() noexcept {
  try {
    while (!is_ending_) {
      wait();
      for (Channel& channel : acceptor_.accept_known()) {
        if (clients_.size() < kMaxClients) clients_.push_back({std::move(channel)});
      }
      static_cast<void>(acceptor_.take_refusals());  // the supervisor's port tells of strangers
      std::erase_if(clients_, [this](Client& client) { return !serve(&client); });
    }
  } catch (const std::exception& e) {
    log_error("this node's slots cannot be read from others any more: {}", e.what());
  }
}

void SlotService::wait() {
  std::vector<pollfd> wanted = {{wake_[0], POLLIN, 0}};
  acceptor_.add_descriptors(&wanted);
  bool is_busy = false;
  for (const Client& client : clients_) {
    const bool writes = client.channel.wants_to_write();
    is_busy = is_busy || (client.answer && !writes);
    wanted.push_back({client.channel.fd(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
  }
  const int until_ms = acceptor_.until_deadline_ms();
  const int timeout_ms = is_busy ? 0 : until_ms >= 0 ? std::min(until_ms, kPollMs) : kPollMs;
  ::poll(wanted.data(), wanted.size(), timeout_ms);
  is_ending_ = (wanted[0].revents & POLLIN) != 0;
}

bool SlotService::serve(Client* client) {
  try {
    client->channel.flush();
    if (client->answer && !client->channel.wants_to_write()) send_more(client);
    while (!client->answer) {
      const auto frame = client->channel.try_receive();
      if (!frame) break;
      obey(client, *frame);
    }
    return true;
  } catch (const Error&) {  // it has closed the connection, or breaks the protocol
    return false;
  }
}

void SlotService::obey(Client* client, const Frame& frame) {
  if (frame.kind != static_cast<uint8_t>(SlotMessage::kAsk))
    throw PeerError("a message that only slot services send");
  begin_answer(client, SlotAsk::read(frame.payload));
}

std::shared_ptr<SnapshotSlots> SlotService::find(const SlotAsk& ask) {
  const std::lock_guard lock(mutex_);
  const auto found = shown_.find(ask.node);
  if (found == shown_.end() || ask.rank >= found->second->num_ranks()) return nullptr;
  return found->second->has(static_cast<int>(ask.rank), ask.step) ? found->second : nullptr;
}

void SlotService::begin_answer(Client* client, const SlotAsk& ask) {
  const std::shared_ptr<SnapshotSlots> slots = find(ask);
  const int rank = static_cast<int>(ask.rank);
  const auto view = slots ? slots->find(rank, ask.step) : std::nullopt;
  if (!view || (ask.what == SlotAsk::kData && ask.end > view->bytes))
    return queue(&client->channel, SlotMessage::kSize, write_slot_number(-1));
  Answer answer{nullptr, ask, "", 0, 0};
  if (ask.what == SlotAsk::kData) {
    answer.slots = slots;
    answer.at = ask.begin;
    answer.end = ask.end;
  } else {
    answer.text = ask.what == SlotAsk::kText ? view->text : slots->layout(rank);
    answer.end = static_cast<int64_t>(answer.text.size());
  }
  queue(&client->channel, SlotMessage::kSize, write_slot_number(answer.end - answer.at));
  if (answer.at < answer.end) client->answer = std::move(answer);
}

// Whoever overwrites the slot meanwhile ends the answer: nobody gets bytes of two steps.
void SlotService::send_more(Client* client) {
  Answer& answer = *client->answer;
  const auto size = static_cast<size_t>(
      std::min<int64_t>(answer.end - answer.at, static_cast<int64_t>(kSlotChunk)));
  std::string bytes;
  if (answer.slots) {
    const int rank = static_cast<int>(answer.ask.rank);
    const auto view = answer.slots->find(rank, answer.ask.step);
    if (view && answer.end <= view->bytes)
      bytes.assign(reinterpret_cast<const char*>(view->data) + answer.at, size);
    if (bytes.empty() || !answer.slots->has(rank, answer.ask.step))
      throw PeerError("the slot was overwritten while it was read");
  } else {
    bytes = answer.text.substr(static_cast<size_t>(answer.at), size);
  }
  queue(&client->channel, SlotMessage::kBytes, bytes);
  answer.at += static_cast<int64_t>(size);
  if (answer.at == answer.end) client->answer.reset();
}

}  // namespace weft
