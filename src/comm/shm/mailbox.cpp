// comm/shm/mailbox.cpp: send and recv, through one mailbox per ordered pair of members.
//
// A message is sent in chunks, numbered over all messages of the pair; the mailbox holds two. A
// long message from an arena is one chunk that carries only its location, and the sender waits
// until it was read.
#include <cstring>

#include "base/error.h"
#include "comm/shm/group.h"
#include "comm/shm/message.h"

namespace weft {
namespace {

CommCall message_call(CommOp op, int64_t bytes) {
  return {op, Dtype::kU8, Reduce::kSum, 0, bytes, ShmWorld::kPrivate, 0};
}

int64_t chunk_of(int64_t bytes, int64_t done, int64_t message) {
  return std::min(message, bytes - done);
}

}  // namespace

void ShmGroup::send(const void* data, int64_t bytes, int to) {
  if (to < 0 || to >= size() || to == me_) throw BugError("send needs another rank of the group");
  Mailbox& box = mailbox(me_, to);
  uint32_t& sent = sent_[static_cast<size_t>(to)];
  const int64_t message_size = message_bytes(chunk_bytes_);
  CommCall call = message_call(CommOp::kSend, bytes);
  note_call(call.op, sent + 1);
  if (bytes > message_size) call.location = world_->locate(world_rank(me_), data, bytes);
  int64_t done = 0;
  do {
    ++sent;
    wait({box.received, sent - 2, to}, call);  // the half was read
    box.calls[sent % 2] = call;
    if (call.location != ShmWorld::kPrivate) {
      done = bytes;
    } else {
      const int64_t length = chunk_of(bytes, done, message_size);
      if (length > 0) {
        std::memcpy(message(me_, to, sent), static_cast<const char*>(data) + done,
                    static_cast<size_t>(length));
      }
      done += length;
    }
    set_and_wake(box.sent, sent);
  } while (done < bytes);
  if (call.location != ShmWorld::kPrivate) wait({box.received, sent, to}, call);
}

void ShmGroup::recv(void* data, int64_t bytes, int from) {
  if (from < 0 || from >= size() || from == me_) {
    throw BugError("recv needs another rank of the group");
  }
  Mailbox& box = mailbox(from, me_);
  uint32_t& received = received_[static_cast<size_t>(from)];
  const CommCall mine = message_call(CommOp::kRecv, bytes);
  note_call(mine.op, received + 1);
  int64_t done = 0;
  do {
    ++received;
    wait({box.sent, received, from}, mine);
    const CommCall& call = box.calls[received % 2];
    if (call.bytes != bytes) {
      fail_bug(fmt::format("ranks {} and {} made different calls: rank {} {}, rank {} {}",
                           world_rank(from), world_rank(me_), world_rank(from), describe(call),
                           world_rank(me_), describe(mine)));
    }
    const bool is_direct = call.location != ShmWorld::kPrivate;
    const int64_t length = is_direct ? bytes : chunk_of(bytes, done, message_bytes(chunk_bytes_));
    const char* source =
        is_direct ? world_->pointer(world_rank(from), call.location) : message(from, me_, received);
    if (length > 0) {
      std::memcpy(static_cast<char*>(data) + done, source, static_cast<size_t>(length));
    }
    done += length;
    set_and_wake(box.received, received);
  } while (done < bytes);
}

}  // namespace weft
