// tests/net/slot_service_test.cpp: slots read from another node, and what strangers get.
#include "net/slot_service.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "base/error.h"
#include "net/slot_client.h"

namespace weft {
namespace {

constexpr int64_t kLongMs = 20'000;
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

TEST(SlotMessages, NumbersOutOfTheirRangeAreRefused) {
  const SlotAsk good{3, 1, 4, SlotAsk::kData, 5, 9};
  EXPECT_EQ(SlotAsk::read(good.write()).write(), good.write());
  for (const SlotAsk& bad :
       {SlotAsk{-1, 1, 4}, SlotAsk{3, -1, 4}, SlotAsk{3, 256, 4}, SlotAsk{3, 1, -4},
        SlotAsk{3, 1, 4, 4}, SlotAsk{3, 1, 4, SlotAsk::kData, 9, 5},
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
}

}  // namespace
}  // namespace weft
