// net/slot_service.cpp: one thread, many readers.
#include "net/slot_service.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"

namespace weft {
namespace {

constexpr size_t kMaxSlotClients = 4096;
constexpr int kPollMs = 1000;
constexpr int kMaxFrames = 16;  // of one client, before the others have their turn

void queue(Channel* to, SlotMessage kind, std::string_view payload) {
  to->queue(static_cast<uint8_t>(kind), payload);
}

}  // namespace

SlotService::SlotService(const std::string& host, const Secret& secret, int64_t stall_ms)
    : acceptor_(host, "0", secret, kSlotIdentity, slot_message_bounds()),
      endpoint_(acceptor_.endpoint()),
      stall_ms_(stall_ms) {
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

void SlotService::keep(int64_t node, std::shared_ptr<SnapshotSlots> copies) {
  show(node, copies);
  const std::lock_guard lock(mutex_);
  kept_ = std::move(copies);
  kept_node_ = node;
  ++epoch_;  // what a rank of before has sent may not have been read yet
}

void SlotService::show_previous(std::map<int64_t, std::shared_ptr<SnapshotSlots>> slots) {
  const std::lock_guard lock(mutex_);
  previous_ = std::move(slots);
}

void SlotService::go_back(int64_t step) {
  const std::lock_guard lock(mutex_);
  ++epoch_;
  if (kept_) kept_->drop_newer(step);
}

void SlotService::work() noexcept {
  try {
    while (!is_ending_) {
      wait();
      accept();
      static_cast<void>(acceptor_.take_refusals());  // the supervisor's port tells of strangers
      std::erase_if(clients_, [this](Client& client) { return !serve(&client); });
    }
  } catch (const std::exception& e) {
    log_error("this node's slots cannot be read from others any more: {}", e.what());
  }
}

void SlotService::accept() {
  std::vector<Channel> known = acceptor_.accept_known();
  const std::lock_guard lock(mutex_);
  for (Channel& channel : known) {
    if (clients_.size() == kMaxSlotClients) return;
    clients_.push_back({std::move(channel)});
    clients_.back().epoch = epoch_;
  }
}

void SlotService::wait() {
  std::vector<pollfd> wanted = {{wake_[0], POLLIN, 0}};
  acceptor_.add_descriptors(&wanted);
  bool is_busy = false;
  for (const Client& client : clients_) {
    const bool writes = client.channel.wants_to_write();
    is_busy = is_busy || client.has_more || (client.answer && !writes);
    wanted.push_back({client.channel.fd(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
  }
  const int until_ms = acceptor_.until_deadline_ms();
  const int timeout_ms = is_busy ? 0 : until_ms >= 0 ? std::min(until_ms, kPollMs) : kPollMs;
  ::poll(wanted.data(), wanted.size(), timeout_ms);
  is_ending_ = (wanted[0].revents & POLLIN) != 0;
}

bool SlotService::serve(Client* client) {
  try {
    const size_t queued = client->channel.queued_bytes();
    client->channel.flush();
    check_progress(client, queued);
    advance(client);
    return true;
  } catch (const RunError& e) {
    note_failure(e.what());
    return false;
  } catch (const std::bad_alloc&) {
    note_failure("out of memory");
    return false;
  } catch (const Error&) {  // it has closed the connection, stalls, or breaks the protocol
    return false;
  }
}

// The rank whose copy it was warns as well, and tries again later.
void SlotService::note_failure(const std::string& why) {
  if (std::exchange(has_warned_, true)) return;
  log_warning("this node could not serve snapshots, or keep another node's copies: {}", why);
}

void SlotService::advance(Client* client) {
  if (client->answer && !client->channel.wants_to_write()) send_more(client);
  client->has_more = false;
  for (int i = 0; !client->answer; ++i) {
    client->has_more = i == kMaxFrames;
    if (client->has_more) return;
    const auto frame = client->channel.try_receive();
    if (!frame) return;
    client->moved = Clock::now();
    obey(client, *frame);
  }
}

// It is waited for where it has not read what was queued, or has begun to send a copy. Whoever has
// nothing under way may be silent for as long as it likes: it keeps no slots alive.
void SlotService::check_progress(Client* client, size_t queued_before) const {
  const auto now = Clock::now();
  const bool is_waited_for = queued_before > 0 || client->taking;
  if (!is_waited_for || client->channel.queued_bytes() < queued_before) client->moved = now;
  if (now - client->moved > std::chrono::milliseconds(stall_ms_))
    throw PeerError("it has neither read nor sent anything for too long");
}

void SlotService::obey(Client* client, const Frame& frame) {
  const auto kind = static_cast<SlotMessage>(frame.kind);
  if ((kind == SlotMessage::kBytes) != client->taking.has_value() || kind == SlotMessage::kSize)
    throw PeerError("a message that is not expected here");
  if (kind == SlotMessage::kBytes) return take(client, frame.payload);
  if (kind == SlotMessage::kPut) return begin_taking(client, SlotPut::read(frame.payload));
  begin_answer(client, SlotAsk::read(frame.payload));
}

std::shared_ptr<SnapshotSlots> SlotService::find(const SlotAsk& ask) {
  const std::lock_guard lock(mutex_);
  const auto& all = ask.is_previous != 0 ? previous_ : shown_;
  const auto found = all.find(ask.node);
  if (found == all.end() || ask.rank >= found->second->num_ranks()) return nullptr;
  return found->second;
}

std::string SlotService::list(SnapshotSlots& slots, int rank) {
  SlotList list;
  for (int i = 0; i < SnapshotSlots::kPerRank; ++i)
    list.steps.push_back(slots.whole_step(rank, i).value_or(-1));
  list.bytes = slots.bytes(rank);
  return list.write();
}

void SlotService::begin_answer(Client* client, const SlotAsk& ask) {
  const std::shared_ptr<SnapshotSlots> slots = find(ask);
  Answer answer;
  answer.rank = static_cast<int>(ask.rank);
  if (slots && ask.what != SlotAsk::kList && ask.what != SlotAsk::kLayouts)
    answer.view = slots->find(answer.rank, ask.step);
  if (ask.what != SlotAsk::kData) {
    answer.text = slots ? text_of(*slots, ask, answer.view) : nullptr;
    answer.end = answer.text ? static_cast<int64_t>(answer.text->size()) : 0;
  } else if (answer.view && ask.end <= answer.view->bytes) {
    answer.slots = slots;
    answer.at = ask.begin;
    answer.end = ask.end;
  }
  if (!answer.slots && !answer.text)
    return queue(&client->channel, SlotMessage::kSize, write_slot_number(-1));
  queue(&client->channel, SlotMessage::kSize, write_slot_number(answer.end - answer.at));
  if (answer.at < answer.end) client->answer = std::move(answer);
}

// Null: there is no such slot.
std::shared_ptr<const std::string> SlotService::text_of(
    SnapshotSlots& slots, const SlotAsk& ask, const std::optional<SnapshotSlots::View>& view) {
  const auto made = [](std::string text) {
    return std::make_shared<const std::string>(std::move(text));
  };
  const int rank = static_cast<int>(ask.rank);
  if (ask.what == SlotAsk::kList) return made(list(slots, rank));
  if (ask.what == SlotAsk::kLayouts) return layouts(slots, ask.step);
  if (!view) return nullptr;
  return made(ask.what == SlotAsk::kLayout ? slots.layout(rank) : view->text);
}

std::shared_ptr<const std::string> SlotService::layouts(SnapshotSlots& slots, int64_t step) {
  std::vector<std::string> all;
  for (int r = 0; r < slots.num_ranks(); ++r) {
    if (!slots.has(r, step)) return nullptr;
    all.push_back(slots.layout(r));
  }
  std::string text = write_layouts(all);
  if (!layouts_ || *layouts_ != text)
    layouts_ = std::make_shared<const std::string>(std::move(text));
  return layouts_;
}

// Whoever overwrites the slot meanwhile ends the answer: nobody gets bytes of two steps, nor of two
// snapshots of one.
void SlotService::send_more(Client* client) {
  Answer& answer = *client->answer;
  const auto size = static_cast<size_t>(
      std::min<int64_t>(answer.end - answer.at, static_cast<int64_t>(kSlotChunk)));
  std::string bytes;
  if (answer.slots) {
    const SnapshotSlots::View& view = *answer.view;
    const auto holds = [&] { return answer.slots->still_holds(answer.rank, view); };
    if (holds())  // else it may also be mapped elsewhere, with another size
      bytes.assign(reinterpret_cast<const char*>(view.data) + answer.at, size);
    if (bytes.empty() || !holds()) throw PeerError("the slot was overwritten while it was read");
  } else {
    bytes = answer.text->substr(static_cast<size_t>(answer.at), size);
  }
  queue(&client->channel, SlotMessage::kBytes, bytes);
  answer.at += static_cast<int64_t>(size);
  if (answer.at == answer.end) client->answer.reset();
}

// ------------------------------------------------------------------ copies

void SlotService::begin_taking(Client* client, const SlotPut& put) {
  const std::lock_guard lock(mutex_);
  if (!kept_ || put.node != kept_node_ || put.rank >= kept_->num_ranks())
    throw PeerError("a copy of a slot that is not kept here");
  client->taking = Taking{kept_, put, "", ""};
}

// Layout and text come first: the slot is only touched when all of them are there.
void SlotService::take(Client* client, std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (client->epoch != epoch_) throw PeerError("a copy of an earlier generation");
  Taking& taking = *client->taking;
  const SlotPut& put = taking.put;
  const int rank = static_cast<int>(put.rank), slot = static_cast<int>(put.slot);
  const auto fill = [&](std::string* part, int64_t size) {
    const size_t count = std::min(bytes.size(), static_cast<size_t>(size) - part->size());
    *part += bytes.substr(0, count);
    bytes.remove_prefix(count);
    return static_cast<int64_t>(part->size()) == size;
  };
  if (!fill(&taking.layout, put.layout_bytes) || !fill(&taking.text, put.text_bytes)) return;
  if (taking.to == nullptr) {
    taking.copies->reserve(rank, put.bytes, taking.layout);
    taking.to = taking.copies->begin(rank, slot, put.step, put.generation);
  }
  if (static_cast<int64_t>(bytes.size()) > put.bytes - taking.at)
    throw PeerError("more bytes than the slot has");
  std::memcpy(taking.to + taking.at, bytes.data(), bytes.size());
  taking.at += static_cast<int64_t>(bytes.size());
  if (taking.at < put.bytes) return;
  taking.copies->finish(rank, slot, taking.text);
  client->taking.reset();
  queue(&client->channel, SlotMessage::kSize, write_slot_number(0));
}

}  // namespace weft
