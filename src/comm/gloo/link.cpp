// comm/gloo/link.cpp: headers and payloads over Gloo's unbound buffers.
//
// Three things of Gloo shape this file. A wait that times out breaks all connections of its group:
// so a wait gets all the time that is left, and abort ends it from another thread. A payload larger
// than the receiver's buffer ends the process: so headers agree on sizes first. What was received
// survives a broken connection, so a peer's last message is not lost.
#include "comm/gloo/link.h"

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "comm/gloo/message.h"

namespace weft {
namespace {

constexpr uint64_t kMessageSlot = 0, kPayloadSlot = 1;
// How long an exiting rank waits until its last headers are sent.
constexpr auto kFlush = std::chrono::seconds(5);

// Numbers from another process are validated before they are used.
bool is_readable(const GlooHeader& header) {
  const auto in = [](auto value, int end) {
    return static_cast<int>(value) >= 0 && static_cast<int>(value) < end;
  };
  return in(header.call.op, kNumCommOps) && in(header.call.dtype, static_cast<int>(Dtype::kBool)) &&
         in(header.call.reduce, 2) && header.bytes >= 0 && header.bytes <= GlooLink::kLittleBytes;
}

}  // namespace

GlooLink::GlooLink(std::shared_ptr<GlooWorld> world, std::string id, std::vector<int> ranks, int me)
    : world_(std::move(world)), id_(std::move(id)), ranks_(std::move(ranks)), me_(me) {
  for (int m = 0; m < size(); ++m) peers_.push_back(std::make_shared<Peer>());
  if (size() == 1) return;
  connect();
  for (int m = 0; m < size(); ++m) {
    if (m == me_) continue;
    peer(m).in = buffer(&peer(m).incoming, sizeof(GlooHeader));
    for (auto& out : peer(m).out) out.buffer = buffer(&out.header, sizeof(GlooHeader));
    give_place(m);
  }
  world_->add(this);
  // Nobody leaves while others still connect. That call is not counted.
  meet({CommOp::kBarrier, Dtype::kU8, Reduce::kSum, 0, 0, 0, 0}, nullptr, 0, 0);
  number_ = 0;
  for (const auto& p : peers_) p->latest = {};
}

GlooLink::~GlooLink() {
  if (size() > 1 && !world_->is_aborted()) flush();
  world_->remove(this);
  peers_.clear();
}

std::shared_ptr<GlooLink::Buffer> GlooLink::buffer(const void* data, int64_t bytes) const {
  return context_->createUnboundBuffer(const_cast<void*>(data), static_cast<size_t>(bytes));
}

const char* GlooLink::from(int member) const { return peer(member).header.data; }

void GlooLink::wake() {
  const std::lock_guard lock(mutex_);
  if (waiting_ == nullptr) return;
  waiting_->abortWaitSend();
  waiting_->abortWaitRecv();
}

void GlooLink::begin(const CommCall& call) {
  call_ = call;
  begun_ = Clock::now();
  is_meeting_ = false;
}

void GlooLink::meet(CommCall call, const void* data, int64_t bytes, int64_t stride) {
  call.number = ++number_;
  begin(call);
  is_meeting_ = true;
  for (const auto& p : peers_) p->has_come = false;
  for (int i = 1; i < size(); ++i) {
    const int m = (me_ + i) % size();
    write(m, call, static_cast<const char*>(data) + m * stride, bytes);
  }
  for (int i = 1; i < size(); ++i) read_call((me_ + i) % size());
  compare_calls();
  is_meeting_ = false;
}

void GlooLink::compare_calls() {
  const CommCall& first = me_ == 0 ? call_ : peer(0).header.call;
  for (int m = 1; m < size(); ++m) {
    const CommCall& other = m == me_ ? call_ : peer(m).header.call;
    if (is_same(first, other)) continue;
    flush();  // so that the others detect the mismatch themselves
    fail_bug(fmt::format(
        "ranks {} and {} made different calls at number {} of their group: rank {} {}, rank {} {}",
        world_rank(0), world_rank(m), number_, world_rank(0), describe(first), world_rank(m),
        describe(other)));
  }
}

void GlooLink::exchange(const std::vector<Route>& routes) {
  std::vector<std::shared_ptr<Buffer>> in(routes.size()), out(routes.size());
  const auto each_peer = [&](const auto& act) {
    for (int i = 1; i < size(); ++i) {
      const auto m = static_cast<size_t>((me_ + i) % size());
      act(static_cast<int>(m), routes[m], in[m], out[m]);
    }
  };
  each_peer([&](int m, const Route& r, auto& to, auto&) {
    if (r.in_bytes > 0) to = buffer(r.in, r.in_bytes);
    if (to) post(m, to.get(), Way::kRecv, kPayloadSlot, r.in_bytes);
  });
  each_peer([&](int m, const Route& r, auto&, auto& what) {
    if (r.out_bytes > 0) what = buffer(r.out, r.out_bytes);
    if (what) post(m, what.get(), Way::kSend, kPayloadSlot, r.out_bytes);
  });
  each_peer([&](int m, const Route&, auto& to, auto& what) {
    if (to) wait(m, to.get(), Way::kRecv);
    if (what) wait(m, what.get(), Way::kSend);
  });
}

// Small data goes with the header, without waiting for the reader; other data when it is ready.
void GlooLink::send(const void* data, int64_t bytes, int to) {
  CommCall call{CommOp::kSend, Dtype::kU8, Reduce::kSum, 0, bytes, 0, ++peer(to).messages_out};
  begin(call);
  const bool is_little = bytes <= kLittleBytes;
  write(to, call, data, is_little ? bytes : 0);
  if (is_little) return;
  read_call(to);
  const CommCall& answer = peer(to).header.call;
  if (answer.op != CommOp::kRecv || answer.bytes != bytes) fail_difference(me_, call, to, answer);
  const auto payload = buffer(data, bytes);
  post(to, payload.get(), Way::kSend, kPayloadSlot, bytes);
  wait(to, payload.get(), Way::kSend);
}

void GlooLink::recv(void* data, int64_t bytes, int from) {
  Peer& p = peer(from);
  const CommCall mine{CommOp::kRecv, Dtype::kU8, Reduce::kSum, 0, bytes, 0, ++p.messages_in};
  begin(mine);
  if (p.mail.empty()) {
    read(from);
    if (p.header.call.op != CommOp::kSend) fail_difference(me_, mine, from, p.header.call);
    p.keep_message();
  }
  const GlooMessage message = std::move(p.mail.front());
  p.mail.pop_front();
  if (message.call.bytes != bytes) fail_difference(from, message.call, me_, mine);
  if (bytes <= kLittleBytes) {
    if (bytes > 0) std::memcpy(data, message.data.data(), static_cast<size_t>(bytes));
    return;
  }
  const auto payload = buffer(data, bytes);
  post(from, payload.get(), Way::kRecv, kPayloadSlot, bytes);
  write(from, mine, nullptr, 0);
  wait(from, payload.get(), Way::kRecv);
}

void GlooLink::write(int member, const CommCall& call, const void* data, int64_t bytes) {
  Peer& p = peer(member);
  Peer::Out& out = p.out[p.headers_out++ % p.out.size()];
  if (out.is_under_way) wait(member, out.buffer.get(), Way::kSend);
  out.header.call = call;
  out.header.bytes = bytes;
  if (bytes > 0) std::memcpy(out.header.data, data, static_cast<size_t>(bytes));
  post(member, out.buffer.get(), Way::kSend, kMessageSlot, GlooHeader::kHeadBytes + bytes);
  out.is_under_way = true;
}

void GlooLink::read(int member) {
  Peer& p = peer(member);
  if (!p.why_gone.empty()) fail_lost(member, p.why_gone);
  wait(member, p.in.get(), Way::kRecv);
  if (!is_readable(p.incoming)) fail_lost(member, "it sent an invalid header");
  std::memcpy(&p.header, &p.incoming,
              static_cast<size_t>(GlooHeader::kHeadBytes + p.incoming.bytes));
  p.latest = p.header.call;
  give_place(member);
}

void GlooLink::read_call(int member) {
  for (read(member); peer(member).header.call.op == CommOp::kSend; read(member)) {
    peer(member).keep_message();
  }
  peer(member).has_come = true;
}

// A peer that has left is detected only when its next header is needed.
void GlooLink::give_place(int member) noexcept {
  Peer& p = peer(member);
  try {
    p.in->recv(member, kMessageSlot, 0, sizeof(GlooHeader));
  } catch (const std::exception& e) {
    p.why_gone = e.what();
  }
}

void GlooLink::post(int member, Buffer* buffer, Way way, uint64_t slot, int64_t bytes) {
  std::string why;
  try {
    if (way == Way::kSend) buffer->send(member, slot, 0, static_cast<size_t>(bytes));
    if (way == Way::kRecv) buffer->recv(member, slot, 0, static_cast<size_t>(bytes));
    return;
  } catch (const std::exception& e) {
    why = e.what();
  }
  fail_lost(member, why);
}

void GlooLink::wait(int member, Buffer* buffer, Way way) {
  const auto set_waiting = [this](Buffer* for_what) {
    const std::lock_guard lock(mutex_);
    waiting_ = for_what;
  };
  set_waiting(buffer);
  // A later abort finds the buffer; an earlier one is detected here.
  if (world_->is_aborted()) {
    set_waiting(nullptr);
    world_->check_abort(comm_op_name(call_.op));
  }
  const auto end = begun_ + std::chrono::milliseconds(deadline_ms());
  const auto left = std::max(std::chrono::milliseconds(1),
                             std::chrono::duration_cast<std::chrono::milliseconds>(
                                 end - Clock::now() + std::chrono::microseconds(999)));
  bool is_done = false;
  std::string why;
  try {
    is_done = way == Way::kSend ? buffer->waitSend(left) : buffer->waitRecv(left);
  } catch (const std::exception& e) {
    why = e.what();
  }
  set_waiting(nullptr);
  if (is_done) return;
  if (why.empty()) world_->check_abort(comm_op_name(call_.op));
  fail_lost(member, why);
}

void GlooLink::flush() noexcept {
  const auto end = Clock::now() + kFlush;
  for (const auto& p : peers_) {
    for (Peer::Out& out : p->out) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
      try {
        if (out.is_under_way && left.count() > 0) out.buffer->waitSend(left);
      } catch (const std::exception&) {
        continue;  // that peer is gone
      }
      out.is_under_way = false;
    }
  }
}

}  // namespace weft
