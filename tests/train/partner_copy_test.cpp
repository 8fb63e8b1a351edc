// tests/train/partner_copy_test.cpp: copies of slots on another node that are slow, or fail.
#include "train/partner_copy.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <thread>

#include "net/channel_acceptor.h"
#include "tests/io/temporary_folder.h"
#include "tests/train/slots_of_nodes.h"

namespace weft::testing {
namespace {

using Clock = std::chrono::steady_clock;

template <typename Holds>
bool until(const Holds& holds) {
  for (const auto end = Clock::now() + std::chrono::seconds(30); Clock::now() < end;) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

TEST(PartnerCopy, IsTriedAgainWhereItHasFailed) {
  const TemporaryFolder folder;
  SlotsOfNodes nodes(folder / "secret", 2, 1, 1);
  nodes.take(1);
  const RankPlace place = nodes.place(0);
  PartnerCopy partner(place);
  partner.send(1);  // it keeps none yet
  EXPECT_EQ(partner.sent_s(), 0);
  const auto copies = SnapshotSlots::create(1);
  nodes.service_of(1).keep(0, copies);
  EXPECT_TRUE(until([&] {
    partner.send(1);
    return copies->has(0, 1);
  }));
  EXPECT_GT(partner.sent_s(), 0);
}

// The partner accepts the connection, and then stands still.
TEST(PartnerCopy, IsGivenUpAtOnceWhereItTakesTooLong) {
  const TemporaryFolder folder;
  SlotsOfNodes nodes(folder / "secret", 1, 1, 1);  // of which the second is here
  ChannelAcceptor second("127.0.0.1", "0", nodes.secret(), kSlotIdentity, slot_message_bounds());
  nodes.take(1);
  RankPlace place = nodes.place(0);
  place.node->num_ranks = 2;
  StoreClient(place.node->store, 20'000, &nodes.secret()).set(slots_key(1), second.endpoint());
  PartnerCopy partner(place);
  std::vector<Channel> known;
  const auto accept = [&] {
    for (Channel& channel : second.accept_known()) known.push_back(std::move(channel));
    return !known.empty();
  };
  std::thread sender([&] { partner.send(1); });
  EXPECT_TRUE(until(accept));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto begun = Clock::now();
  partner.give_up(1, 0.02);
  sender.join();
  EXPECT_LT(Clock::now() - begun, std::chrono::seconds(5));  // not until its own deadline
  partner.send(1);  // too soon: it would cost more than 2 % of the time
  accept();
  EXPECT_EQ(known.size(), 1U);
}

// Before it was connected: the slot may be overwritten from here on.
TEST(PartnerCopy, OneThatWasGivenUpIsNotSent) {
  const TemporaryFolder folder;
  SlotsOfNodes nodes(folder / "secret", 2, 1, 1);
  nodes.take(1);
  const RankPlace place = nodes.place(0);
  const auto copies = SnapshotSlots::create(1);
  nodes.service_of(1).keep(0, copies);
  PartnerCopy partner(place);
  partner.give_up(1, 0);
  partner.send(1);
  EXPECT_FALSE(copies->has(0, 1));
}

}  // namespace
}  // namespace weft::testing
