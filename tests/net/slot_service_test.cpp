// tests/net/slot_service_test.cpp: slots read from another node, and what strangers get.
#include "net/slot_service.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"
#include "net/channel_acceptor.h"
#include "net/slot_client.h"
#include "tests/net/helpers.h"

namespace weft {
namespace {

using testing::kLongMs;

constexpr int64_t kBytes = 3 * static_cast<int64_t>(kSlotChunk) + 17;

std::byte value_at(int64_t step, int64_t i) {
  return static_cast<std::byte>((i * 7 + i / 4096 + step) & 0xff);
}

void fill(SnapshotSlots& slots, int rank, int slot, int64_t step) {
  std::byte* bytes = slots.begin(rank, slot, step, 0);
  for (int64_t i = 0; i < kBytes; ++i) bytes[i] = value_at(step, i);
  slots.finish(rank, slot, "step " + std::to_string(step));
}

class SlotServiceTest : public ::testing::Test {
 protected:
  SlotServiceTest() {
    for (int r = 0; r < 2; ++r) slots_->reserve(r, kBytes, "layout " + std::to_string(r));
    fill(*slots_, 1, 0, 4);
    service_.show(3, slots_);
  }
  SlotClient client() { return {service_.endpoint(), secret_, kLongMs}; }

  const Secret secret_ = Secret::random();
  const std::shared_ptr<SnapshotSlots> slots_ = SnapshotSlots::create(2);
  SlotService service_{"127.0.0.1", secret_};
};

TEST_F(SlotServiceTest, TextsLayoutsAndRanges) {
  SlotClient asks(service_.endpoint(), secret_, kLongMs);
  EXPECT_EQ(asks.text(3, 1, 4), "step 4");
  EXPECT_EQ(asks.layout(3, 1, 4), "layout 1");
  const std::pair<int64_t, int64_t> ranges[] = {{0, kBytes}, {5, 6}, {kBytes - 1, kBytes}, {9, 9}};
  for (const auto& [begin, end] : ranges) {
    int64_t next = begin;
    bool is_equal = true;
    asks.read(3, 1, 4, static_cast<size_t>(begin), static_cast<size_t>(end),
              [&](const std::byte* data, size_t at, size_t size) {
                is_equal = is_equal && static_cast<int64_t>(at) == next;
                for (size_t i = 0; i < size; ++i)
                  is_equal = is_equal && data[i] == value_at(4, static_cast<int64_t>(at + i));
                next += static_cast<int64_t>(size);
              });
    EXPECT_TRUE(is_equal);
    EXPECT_EQ(next, end);
  }
}

TEST_F(SlotServiceTest, WhatIsNotThereIsSaidAndTheConnectionStays) {
  SlotClient asks(service_.endpoint(), secret_, kLongMs);
  EXPECT_FALSE(asks.text(3, 0, 4));  // this rank has no such step
  EXPECT_FALSE(asks.text(3, 1, 5));
  EXPECT_FALSE(asks.text(3, 2, 4));  // no such rank
  EXPECT_FALSE(asks.text(2, 1, 4));  // another node
  EXPECT_THROW(asks.read(3, 1, 4, 0, kBytes + 1, [](auto...) {}), PeerError);
  static_cast<void>(slots_->begin(1, 0, 6, 0));  // being overwritten
  EXPECT_FALSE(asks.text(3, 1, 4));
  fill(*slots_, 1, 0, 6);
  EXPECT_EQ(asks.text(3, 1, 6), "step 6");
  service_.show(3, nullptr);
  EXPECT_FALSE(asks.text(3, 1, 6));
}

// One question for a node, where all of its ranks have the step.
TEST_F(SlotServiceTest, LayoutsOfANodeComeTogether) {
  SlotClient asks(service_.endpoint(), secret_, kLongMs);
  EXPECT_FALSE(asks.layouts(3, 4));  // rank 0 does not have it
  fill(*slots_, 0, 1, 4);
  EXPECT_EQ(asks.layouts(3, 4), (std::vector<std::string>{"layout 0", "layout 1"}));
  EXPECT_FALSE(asks.layouts(3, 5));
  EXPECT_FALSE(asks.layouts(2, 4));
}

// Two layouts may have a node of the same number.
TEST_F(SlotServiceTest, SlotsOfThePreviousLayoutAreReadBesideThoseOfThisOne) {
  const std::shared_ptr<SnapshotSlots> other = SnapshotSlots::create(1);
  other->reserve(0, kBytes, "previous");
  fill(*other, 0, 0, 4);
  service_.show_previous({{3, other}});
  SlotClient asks(service_.endpoint(), secret_, kLongMs),
      previous(service_.endpoint(), secret_, kLongMs, true);
  EXPECT_EQ(previous.layouts(3, 4), std::vector<std::string>{"previous"});
  EXPECT_EQ(previous.text(3, 0, 4), "step 4");
  EXPECT_FALSE(previous.text(3, 1, 4));
  EXPECT_EQ(asks.layout(3, 1, 4), "layout 1");
  EXPECT_FALSE(asks.text(3, 0, 4));
  service_.show(3, nullptr);
  EXPECT_EQ(previous.text(3, 0, 4), "step 4");
  service_.show_previous({});
  EXPECT_FALSE(previous.text(3, 0, 4));
}

TEST_F(SlotServiceTest, SeveralReadersAtOnce) {
  std::vector<std::thread> readers;
  std::atomic<int64_t> sum = 0;
  for (int i = 0; i < 8; ++i)
    readers.emplace_back([&] {
      SlotClient asks(service_.endpoint(), secret_, kLongMs);
      asks.read(3, 1, 4, 0, kBytes,
                [&](const std::byte*, size_t, size_t size) { sum += static_cast<int64_t>(size); });
    });
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(sum, 8 * kBytes);
}

TEST_F(SlotServiceTest, AStrangerGetsNothing) {
  EXPECT_THROW(SlotClient(service_.endpoint(), Secret::random(), kLongMs), UserError);
  EXPECT_EQ(client().text(3, 1, 4), "step 4");
}

// Frames with the right key whose content is anything: the connection ends, the service does not.
TEST_F(SlotServiceTest, AnyMessageIsAnsweredOrEndsTheConnection) {
  std::mt19937 dice(17);
  const Endpoint endpoint = parse_endpoint(service_.endpoint());
  for (int i = 0; i < 60; ++i) {
    Channel wire =
        Channel::connect(endpoint, secret_, kSlotIdentity, slot_message_bounds(), kLongMs);
    const auto kind = static_cast<uint8_t>(1 + dice() % 4);
    std::string bytes = i % 2 == 0 ? SlotAsk{3, 1, 4, SlotAsk::kData, 0, 100}.write()
                                   : std::string(dice() % 9, 'x');
    if (kind == 2) bytes.resize(std::min<size_t>(bytes.size(), 8));
    if (!bytes.empty()) bytes[dice() % bytes.size()] = static_cast<char>(dice());
    try {
      wire.send(kind, bytes, kLongMs);
      EXPECT_EQ(wire.receive(kLongMs).kind, static_cast<uint8_t>(SlotMessage::kSize));
    } catch (const PeerError&) {
      continue;
    }
  }
  EXPECT_EQ(client().text(3, 1, 4), "step 4");
}

// ------------------------------------------------------------------ answers that last

// More than sockets keep on their way.
constexpr int64_t kLarge = int64_t{48} << 20;

std::shared_ptr<SnapshotSlots> large_slots() {
  auto slots = SnapshotSlots::create(1);
  slots->reserve(0, kLarge, "layout");
  std::memset(slots->begin(0, 0, 4, 0), 1, kLarge);
  slots->finish(0, 0, "");
  return slots;
}

bool wait_for(const std::function<bool()>& holds) {
  for (int i = 0; i < 20'000 && !holds(); ++i) ::usleep(1000);
  return holds();
}

class LongAnswers : public ::testing::Test {
 protected:
  Channel ask_all(const SlotService& service) {
    Channel wire = Channel::connect(parse_endpoint(service.endpoint()), secret_, kSlotIdentity,
                                    slot_message_bounds(), kLongMs);
    wire.send(static_cast<uint8_t>(SlotMessage::kAsk),
              SlotAsk{5, 0, 4, SlotAsk::kData, 0, kLarge}.write(), kLongMs);
    EXPECT_EQ(read_slot_number(wire.receive(kLongMs).payload), kLarge);
    return wire;
  }
  // Frame by frame, until the end or the error.
  static int64_t read_all(Channel* wire, int pause_ms = 0) {
    int64_t got = 0;
    try {
      while (got < kLarge) {
        got += static_cast<int64_t>(wire->receive(kLongMs).payload.size());
        ::usleep(static_cast<useconds_t>(1000 * pause_ms));
      }
    } catch (const PeerError&) {
      return -got;
    }
    return got;
  }
  const Secret secret_ = Secret::random();
};

// A reader that stops must not keep the slots of an earlier generation in memory.
TEST_F(LongAnswers, OfAReaderThatStopsEndAndFreeTheSlots) {
  SlotService service("127.0.0.1", secret_, 500);
  auto slots = large_slots();
  service.show(5, slots);
  Channel wire = ask_all(service);
  service.show(5, nullptr);
  const std::weak_ptr<SnapshotSlots> kept = slots;
  slots.reset();
  EXPECT_FALSE(kept.expired());
  EXPECT_TRUE(wait_for([&] { return kept.expired(); }));
  EXPECT_LT(read_all(&wire), 0);
}

TEST_F(LongAnswers, OfASlowReaderGoOn) {
  SlotService service("127.0.0.1", secret_, 2000);
  service.show(5, large_slots());
  SlotClient idle(service.endpoint(), secret_, kLongMs);
  Channel wire = ask_all(service);
  EXPECT_EQ(read_all(&wire, 15), kLarge);  // 192 frames: 3 s
  EXPECT_TRUE(idle.list(5, 0));            // who has no question under way may be silent
}

// A rank that takes the same step again, after a rollback, has other bytes of it.
TEST_F(LongAnswers, EndWhereTheSlotIsWrittenAgainWithTheSameStep) {
  SlotService service("127.0.0.1", secret_);
  const auto slots = large_slots();
  service.show(5, slots);
  Channel wire = ask_all(service);
  ::usleep(1'500'000);       // it has sent what sockets take, and waits
  service.show(9, nullptr);  // for the thread sanitizer: what it has read lies before this
  std::memset(slots->begin(0, 0, 4, 1), 2, kLarge);
  slots->finish(0, 0, "");
  EXPECT_LT(read_all(&wire), 0);
}

TEST_F(LongAnswers, OneThatStopsSendingACopyIsGone) {
  SlotService service("127.0.0.1", secret_, 500);
  auto copies = SnapshotSlots::create(1);
  service.keep(2, copies);
  Channel wire = Channel::connect(parse_endpoint(service.endpoint()), secret_, kSlotIdentity,
                                  slot_message_bounds(), kLongMs);
  wire.send(static_cast<uint8_t>(SlotMessage::kPut), SlotPut{2, 0, 0, 7, 1, 6, 4, kLarge}.write(),
            kLongMs);
  wire.send(static_cast<uint8_t>(SlotMessage::kBytes), "layouttext and some", kLongMs);
  ASSERT_TRUE(wait_for([&] { return copies->bytes(0) == kLarge; }));
  service.keep(2, nullptr);
  const std::weak_ptr<SnapshotSlots> kept = copies;
  copies.reset();
  EXPECT_TRUE(wait_for([&] { return kept.expired(); }));
  EXPECT_THROW(static_cast<void>(wire.receive(kLongMs)), PeerError);
}

// ------------------------------------------------------------------ copies of another node

class SlotCopies : public SlotServiceTest {
 protected:
  SlotCopies() { service_.keep(2, copies_); }
  SlotPut put(int rank, int slot, int64_t step) const {
    return {2, rank, slot, step, 1, 6, 4, kBytes};
  }
  std::vector<std::byte> bytes(int64_t step) const {
    std::vector<std::byte> all;
    for (int64_t i = 0; i < kBytes; ++i) all.push_back(value_at(step, i));
    return all;
  }

  const std::shared_ptr<SnapshotSlots> copies_ = SnapshotSlots::create(2);
};

TEST_F(SlotCopies, AreWholeWhenTheAnswerComes) {
  SlotClient writer(service_.endpoint(), secret_, kLongMs);
  writer.put(put(0, 1, 7), "layout", "text", bytes(7).data());
  EXPECT_TRUE(copies_->has(0, 7));
  EXPECT_EQ(copies_->layout(0), "layout");
  const auto view = copies_->find(0, 7);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->slot, 1);
  EXPECT_EQ(view->text, "text");
  EXPECT_EQ(std::memcmp(view->data, bytes(7).data(), kBytes), 0);
  EXPECT_TRUE(copies_->common_steps().empty());
  writer.put(put(1, 0, 7), "layout", "text", bytes(7).data());
  EXPECT_EQ(copies_->common_steps(), (std::vector<int64_t>{7}));
  writer.put(put(0, 0, 8), "layout", "text", bytes(8).data());
  const auto list = writer.list(2, 0);
  ASSERT_TRUE(list);
  EXPECT_EQ(list->steps, (std::vector<int64_t>{8, 7, -1}));
  EXPECT_EQ(list->bytes, kBytes);
  EXPECT_EQ(writer.text(2, 0, 8), "text");
  EXPECT_FALSE(writer.list(2, 2));
}

// A rank that dies while it sends leaves the slot without a step, and the others as they were.
TEST_F(SlotCopies, HalfACopyIsNone) {
  SlotClient(service_.endpoint(), secret_, kLongMs)
      .put(put(0, 0, 7), "layout", "text", bytes(7).data());
  {
    Channel wire = Channel::connect(parse_endpoint(service_.endpoint()), secret_, kSlotIdentity,
                                    slot_message_bounds(), kLongMs);
    wire.send(static_cast<uint8_t>(SlotMessage::kPut), put(0, 1, 8).write(), kLongMs);
    wire.send(static_cast<uint8_t>(SlotMessage::kBytes), "layouttext and some", kLongMs);
  }
  SlotClient asks(service_.endpoint(), secret_, kLongMs);
  for (int i = 0; i < 500 && asks.list(2, 0)->bytes == 0; ++i) ::usleep(1000);
  EXPECT_EQ(asks.list(2, 0)->steps, (std::vector<int64_t>{7, -1, -1}));
}

TEST_F(SlotCopies, OnlyOfTheNodeThatIsKeptHere) {
  for (const int64_t node : {int64_t{1}, int64_t{3}}) {
    SlotClient writer(service_.endpoint(), secret_, kLongMs);
    SlotPut other = put(0, 0, 7);
    other.node = node;
    EXPECT_THROW(writer.put(other, "layout", "text", bytes(7).data()), PeerError);
  }
  EXPECT_EQ(client().text(3, 1, 4), "step 4");  // the node's own are untouched
}

// What an earlier generation has sent and arrives late must not be taken for the next one's.
TEST_F(SlotCopies, AfterARollbackLaterStepsAreGone) {
  SlotClient writer(service_.endpoint(), secret_, kLongMs);
  writer.put(put(0, 0, 7), "layout", "text", bytes(7).data());
  writer.put(put(0, 1, 8), "layout", "text", bytes(8).data());
  service_.go_back(7);
  EXPECT_TRUE(copies_->has(0, 7));
  EXPECT_FALSE(copies_->has(0, 8));
  EXPECT_THROW(writer.put(put(0, 1, 8), "layout", "text", bytes(8).data()), PeerError);
  EXPECT_FALSE(copies_->has(0, 8));
  SlotClient(service_.endpoint(), secret_, kLongMs)
      .put(put(0, 1, 8), "layout", "text", bytes(8).data());
  EXPECT_TRUE(copies_->has(0, 8));
}

// A starved service may read it when the copies are those of another generation.
TEST_F(SlotCopies, AWriterOfEarlierCopiesIsRefused) {
  SlotClient writer(service_.endpoint(), secret_, kLongMs);
  writer.put(put(0, 0, 7), "layout", "text", bytes(7).data());
  const auto next = SnapshotSlots::create(copies_->num_ranks());
  service_.keep(put(0, 0, 7).node, next);
  EXPECT_THROW(writer.put(put(0, 0, 8), "layout", "text", bytes(8).data()), PeerError);
  EXPECT_FALSE(next->has(0, 8));
  SlotClient(service_.endpoint(), secret_, kLongMs)
      .put(put(0, 0, 8), "layout", "text", bytes(8).data());
  EXPECT_TRUE(next->has(0, 8));
}

// Its answer comes when another one is expected.
TEST(SlotClientTest, ALateAnswerIsNotTakenForTheNext) {
  const Secret secret = Secret::random();
  ChannelAcceptor acceptor("127.0.0.1", "0", secret, kSlotIdentity, slot_message_bounds());
  std::optional<SlotClient> client;
  std::thread connects([&] { client.emplace(acceptor.endpoint(), secret, 300); });
  std::vector<Channel> known;
  while (known.empty()) known = acceptor.accept_known();
  connects.join();
  EXPECT_THROW(client->text(0, 0, 1), PeerError);
  try {
    known[0].send(static_cast<uint8_t>(SlotMessage::kSize), write_slot_number(3), kLongMs);
    known[0].send(static_cast<uint8_t>(SlotMessage::kBytes), "one", kLongMs);
  } catch (const PeerError&) {  // it has closed the connection
  }
  EXPECT_THROW(client->text(0, 0, 2), PeerError);
}

TEST(SlotMessages, NumbersOutOfTheirRangeAreRefused) {
  const SlotAsk good{3, 1, 4, SlotAsk::kData, 5, 9};
  EXPECT_EQ(SlotAsk::read(good.write()).write(), good.write());
  for (const SlotAsk& bad :
       {SlotAsk{-1, 1, 4}, SlotAsk{3, -1, 4}, SlotAsk{3, 256, 4}, SlotAsk{3, 1, -4},
        SlotAsk{3, 1, 4, 5}, SlotAsk{3, 1, 4, SlotAsk::kData, 9, 5},
        SlotAsk{3, 1, 4, SlotAsk::kData, -1, 5}})
    EXPECT_THROW(SlotAsk::read(bad.write()), PeerError);
  EXPECT_THROW(SlotAsk::read(good.write().substr(1)), PeerError);
  EXPECT_THROW(read_slot_number("1234567"), PeerError);
  const SlotPut put{2, 1, 0, 7, 1, 6, 4, 100};
  EXPECT_EQ(SlotPut::read(put.write()).write(), put.write());
  for (const SlotPut& bad :
       {SlotPut{-1, 1, 0, 7, 1, 6, 4, 100}, SlotPut{2, 256, 0, 7, 1, 6, 4, 100},
        SlotPut{2, 1, 3, 7, 1, 6, 4, 100}, SlotPut{2, 1, 0, -7, 1, 6, 4, 100},
        SlotPut{2, 1, 0, 7, 1, int64_t{1} << 40, 4, 100},
        SlotPut{2, 1, 0, 7, 1, 6, int64_t{1} << 30, 100}, SlotPut{2, 1, 0, 7, 1, 6, 4, 0},
        SlotPut{2, 1, 0, 7, 1, 6, 4, int64_t{1} << 50}})
    EXPECT_THROW(SlotPut::read(bad.write()), PeerError);
  EXPECT_THROW(SlotList::read(SlotList{{1, 2, -2}, 5}.write()), PeerError);
  EXPECT_THROW(SlotList::read(SlotList{{1, 2}, 5}.write()), PeerError);
  const std::vector<std::string> layouts = {"a", "", std::string(300, 'b')};
  const std::string written = write_layouts(layouts);
  EXPECT_EQ(read_layouts(written), layouts);
  EXPECT_THROW(read_layouts(written.substr(0, written.size() - 1)), PeerError);
  EXPECT_THROW(read_layouts(written + "xyz"), PeerError);
  EXPECT_THROW(read_layouts(write_slot_number(-1)), PeerError);
}

}  // namespace
}  // namespace weft
