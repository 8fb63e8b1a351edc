// tests/net/channel_test.cpp: channels over real connections: deadlines, losses, injected bytes.
#include "net/channel.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "tests/net/helpers.h"

namespace weft::testing {
namespace {

const FrameBounds kChannelBounds = {{1, 100}, {2, 4 << 20}};

SessionKeys mirrored(const SessionKeys& keys) { return {keys.receive, keys.send}; }

// Two ends, and a descriptor that writes into the stream of `a` behind its back.
struct Ends {
  explicit Ends(int pair[2])
      : a(Socket(pair[0]), keys, kChannelBounds, "peer b"),
        b(Socket(pair[1]), mirrored(keys), kChannelBounds, "peer a"),
        behind(::dup(pair[0])) {}
  void inject(std::string_view bytes) const {
    ASSERT_EQ(::send(behind.fd(), bytes.data(), bytes.size(), 0),
              static_cast<ssize_t>(bytes.size()));
  }
  const SessionKeys keys = {sha256("a to b"), sha256("b to a")};
  Channel a, b;
  Socket behind;
};

std::unique_ptr<Ends> connected() {
  int pair[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  return std::make_unique<Ends>(pair);
}

TEST(Channel, CarriesFramesBothWays) {
  const auto ends = connected();
  EXPECT_EQ(ends->b.try_receive(), std::nullopt);
  ends->a.send(1, "first", kLongMs);
  ends->a.send(2, "", kLongMs);
  ends->b.send(1, "answer", kLongMs);
  EXPECT_EQ(ends->b.try_receive(), (Frame{1, "first"}));
  EXPECT_EQ(ends->b.receive(kLongMs), (Frame{2, ""}));
  EXPECT_EQ(ends->b.try_receive(), std::nullopt);
  EXPECT_EQ(ends->a.receive(kLongMs), (Frame{1, "answer"}));
}

// More than a socket's buffers hold, one thread on each side.
TEST(Channel, LargeFramesWhileBothSend) {
  const auto ends = connected();
  const std::string big(4 << 20, 'x');
  std::thread other([&] {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(ends->b.receive(kLongMs).payload, big);
    ends->b.send(2, big, kLongMs);
  });
  for (int i = 0; i < 3; ++i) ends->a.send(2, big, kLongMs);
  EXPECT_EQ(ends->a.receive(kLongMs).payload, big);
  other.join();
}

TEST(Channel, APeerThatDoesNotReadIsLostAfterTheDeadline) {
  const auto ends = connected();
  const std::string big(4 << 20, 'x');
  EXPECT_EQ(complaint<PeerError>([&] { ends->a.send(2, big, 50); }),
            "peer b: does not read: a message of kind 2 was not taken within 0.1 s");
  EXPECT_NE(complaint<PeerError>([&] { ends->a.send(1, "", 50); }), "")
      << "half a frame is on its way";
}

TEST(Channel, AQueueIsBounded) {
  const auto ends = connected();
  const std::string big(4 << 20, 'x');
  ends->a.queue(2, big);
  EXPECT_TRUE(ends->a.wants_to_write());
  const auto queue_often = [&] {
    for (int i = 0; i < 5; ++i) ends->a.queue(2, big);
  };
  const std::string why = complaint<PeerError>(queue_often);
  EXPECT_NE(why.find("peer b: does not read: "), std::string::npos) << why;
}

TEST(Channel, AQueueIsFlushedAsThePeerReads) {
  const auto ends = connected();
  const std::string big(3 << 20, 'x');
  ends->a.queue(2, big);
  ends->a.queue(1, "last");
  size_t received = 0;
  while (ends->a.wants_to_write()) {
    ends->a.flush();
    while (ends->b.try_receive()) ++received;
  }
  while (received < 2 && ends->b.try_receive()) ++received;
  EXPECT_EQ(received, 2U);
}

TEST(Channel, ALossIsReportedAfterWhatArrived) {
  auto ends = connected();
  ends->a.send(1, "last words", kLongMs);
  ends->a.shut_down();
  EXPECT_EQ(ends->b.receive(kLongMs).payload, "last words");
  EXPECT_EQ(complaint<PeerError>([&] { std::ignore = ends->b.receive(kLongMs); }),
            "peer a: closed the connection");

  ends = connected();
  ends->inject(std::string("\5\0\0\0\1hel", 8));
  ends->a.shut_down();
  EXPECT_EQ(complaint<PeerError>([&] { std::ignore = ends->b.receive(kLongMs); }),
            "peer a: closed the connection within a message");
}

TEST(Channel, ADeadlineOfReceiveLosesNothing) {
  const auto ends = connected();
  EXPECT_EQ(complaint<PeerError>([&] { std::ignore = ends->b.receive(20); }),
            "peer a: no message in 0.0 s");
  ends->a.send(1, "late", kLongMs);
  EXPECT_EQ(ends->b.receive(kLongMs).payload, "late");
}

// On a live connection: bytes of a stranger, a frame recorded a moment ago.
TEST(Channel, InjectedAndReplayedFramesAreFound) {
  for (const int attack : {0, 1, 2}) {
    const auto ends = connected();
    FrameWriter recorded(ends->keys.send, kChannelBounds);
    const std::string frame = recorded.write(1, "pay 1");
    ends->a.send(1, "pay 1", kLongMs);
    EXPECT_EQ(ends->b.receive(kLongMs).payload, "pay 1");
    if (attack == 0) ends->inject(frame);
    if (attack == 1) ends->inject(FrameWriter(sha256("a guess"), kChannelBounds).write(1, "pay 2"));
    if (attack == 2) ends->inject(std::string(3000, '\1'));
    ends->a.send(1, "pay 3", kLongMs);
    const std::string why = complaint<PeerError>([&] { std::ignore = ends->b.receive(kLongMs); });
    EXPECT_NE(why.find("peer a: refused a message"), std::string::npos) << why;
    EXPECT_NE(complaint<PeerError>([&] { std::ignore = ends->b.try_receive(); }), "") << "for good";
    const auto send_often = [&] {
      for (int i = 0; i < 100; ++i) ends->a.send(1, "", kLongMs);
    };
    EXPECT_NE(complaint<PeerError>(send_often), "") << "the sender learns of it";
  }
}

TEST(Channel, ConnectionsThatNobodyTakesEndInTime) {
  const Socket listener = Socket::listen_on("127.0.0.1", "0");  // takes connections, says nothing
  const Secret secret = Secret::random();
  const auto connect = [&] {
    Channel::connect(parse_endpoint(listener.local_endpoint()), secret, {"supervisor"},
                     kChannelBounds, 60);
  };
  const auto start = std::chrono::steady_clock::now();
  const std::string why = complaint<PeerError>(connect);
  EXPECT_NE(why.find("no handshake with the supervisor at 127.0.0.1:"), std::string::npos) << why;
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace weft::testing
