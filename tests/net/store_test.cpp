// tests/net/store_test.cpp: keys, wills, farewells, and clients that break the rules.
#include "net/store.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "base/error.h"
#include "net/store_frame.h"

namespace weft::testing {
namespace {

constexpr int64_t kDeadlineMs = 20'000;

TEST(Store, AKeyIsWaitedForAndSetOnce) {
  const StoreServer server;
  StoreClient a(server.endpoint(), kDeadlineMs), b(server.endpoint(), kDeadlineMs);
  std::thread later([&a] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    a.set("key", std::string("first\0value", 11));
    a.set("key", "second");
  });
  EXPECT_EQ(b.wait_for("key", kDeadlineMs), std::string("first\0value", 11));
  later.join();
  EXPECT_EQ(a.wait_for("key", kDeadlineMs), std::string("first\0value", 11));
}

TEST(Store, TheDeadlineNamesTheKey) {
  const StoreServer server;
  StoreClient client(server.endpoint(), kDeadlineMs);
  try {
    EXPECT_EQ(client.wait_for("never", 50), std::nullopt);
    ADD_FAILURE() << "no error";
  } catch (const PeerError& e) {
    EXPECT_NE(std::string(e.what()).find("for never: no answer in 0.1 s"), std::string::npos)
        << e.what();
  }
}

// An answer that comes after its deadline is not taken for that of the next question.
TEST(Store, ALateAnswerIsNotTakenForAnother) {
  const StoreServer server;
  StoreClient late(server.endpoint(), kDeadlineMs), other(server.endpoint(), kDeadlineMs);
  EXPECT_THROW(std::ignore = late.wait_for("first", 20), PeerError);
  other.set("first", "1");
  EXPECT_EQ(other.wait_for("first", kDeadlineMs), "1");  // so the late answer is on its way
  other.set("second", "2");
  EXPECT_EQ(late.wait_for("second", kDeadlineMs), "2");
}

TEST(Store, WhatWasAskedForAheadNeedsNoServer) {
  auto server = std::make_unique<StoreServer>();
  StoreClient other(server->endpoint(), kDeadlineMs), client(server->endpoint(), kDeadlineMs);
  for (const char* key : {"a", "b", "c"}) other.set(key, std::string("value of ") + key);
  EXPECT_EQ(other.wait_for("c", kDeadlineMs), "value of c");  // so the server has them all
  client.ask_ahead({"a", "never", "b"});
  EXPECT_EQ(client.wait_for("c", kDeadlineMs), "value of c");
  server.reset();
  EXPECT_EQ(client.wait_for("b", kDeadlineMs), "value of b");
  EXPECT_EQ(client.wait_for("a", kDeadlineMs), "value of a");
}

// Keys that nobody waited for do not use up what may be asked for ahead.
TEST(Store, WhatIsAskedForAheadReplacesWhatWasBefore) {
  auto server = std::make_unique<StoreServer>();
  StoreClient other(server->endpoint(), kDeadlineMs), client(server->endpoint(), kDeadlineMs);
  other.set("a", "1");
  other.set("b", "2");
  EXPECT_EQ(other.wait_for("b", kDeadlineMs), "2");
  client.ask_ahead({"0", "1", "2", "3", "4", "5", "6", "7"});
  client.ask_ahead({"a"});
  EXPECT_EQ(client.wait_for("b", kDeadlineMs), "2");
  server.reset();
  EXPECT_EQ(client.wait_for("a", kDeadlineMs), "1");
}

// The server has forgotten the question, which it could not answer then.
TEST(Store, WhatWasNotThereWhenAskedForAheadIsAskedForAgain) {
  const StoreServer server;
  StoreClient other(server.endpoint(), kDeadlineMs), client(server.endpoint(), kDeadlineMs);
  other.set("there", "1");
  client.ask_ahead({"late", "later"});
  EXPECT_EQ(client.wait_for("there", kDeadlineMs), "1");
  other.set("late", "2");
  other.set("later", "3");
  EXPECT_EQ(client.wait_for("late", kDeadlineMs), "2");
  EXPECT_EQ(client.wait_for("later", kDeadlineMs), "3");
}

TEST(Store, AClientMayVanishWhileItWaits) {
  const StoreServer server;
  StoreClient other(server.endpoint(), kDeadlineMs);
  {
    StoreClient vanishing(server.endpoint(), kDeadlineMs);
    EXPECT_THROW(std::ignore = vanishing.wait_for("key", 20), PeerError);
  }
  // Time for the server to see the end of it.
  EXPECT_THROW(std::ignore = other.wait_for("never", 50), PeerError);
  other.set("key", "value");
  EXPECT_EQ(other.wait_for("key", kDeadlineMs), "value");
}

TEST(Store, ManyClientsMeet) {
  const StoreServer server;
  std::vector<std::thread> clients;
  for (int i = 0; i < 200; ++i) {
    clients.emplace_back([&, i] {
      StoreClient client(server.endpoint(), kDeadlineMs);
      client.set(fmt::format("agent/{}", i), fmt::format("{}", i));
      const int next = (i + 1) % 200;
      EXPECT_EQ(client.wait_for(fmt::format("agent/{}", next), kDeadlineMs),
                fmt::format("{}", next));
    });
  }
  for (std::thread& client : clients) client.join();
}

// A will is executed when the connection ends without farewell, and only then.
TEST(Store, AWillIsExecutedWithoutFarewell) {
  const StoreServer server;
  StoreClient reader(server.endpoint(), kDeadlineMs);
  {
    StoreClient polite(server.endpoint(), kDeadlineMs);
    polite.set_last_will("will", "of the polite");
  }
  Socket rude = Socket::connect_to(parse_endpoint(server.endpoint()), kDeadlineMs);
  for (const std::string& frame : {write_store_frame(kStoreHello, kStoreProtocol, ""),
                                   write_store_frame(kStoreLastWill, "will", "of the rude")}) {
    rude.send_all(frame.data(), static_cast<int64_t>(frame.size()));
  }
  rude = Socket();
  EXPECT_EQ(reader.wait_for("will", kDeadlineMs), "of the rude");
}

TEST(Store, AFarewellEndsTheWaitAndALossIsAnError) {
  auto server = std::make_unique<StoreServer>();
  StoreClient client(server->endpoint(), kDeadlineMs), closed(server->endpoint(), kDeadlineMs);
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    closed.close();
    server.reset();
  });
  EXPECT_EQ(closed.wait_for("never", -1), std::nullopt);
  EXPECT_EQ(client.wait_for("never", -1), std::nullopt);
  later.join();
  // The first bytes sent into a broken connection may still be accepted.
  const auto set_often = [&] {
    for (int i = 0; i < 200; ++i) {
      client.set("a", "b");
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  };
  EXPECT_THROW(set_often(), PeerError);
}

// Disconnected at once; the others do not notice.
TEST(Store, MisbehavingClientsAreDisconnected) {
  const StoreServer server;
  StoreClient good(server.endpoint(), kDeadlineMs);
  const std::string hello = write_store_frame(kStoreHello, kStoreProtocol, "");
  const std::string bad[] = {
      std::string("\xff\xff\xff\x7f", 4),                // a frame of 2 GiB
      std::string("\0\0\0\0", 4),                        // an empty one
      std::string("\3\0\0\0\3\xff\xff", 7),              // a key longer than its frame
      write_store_frame(kStoreSet, "abort", "at once"),  // without hello
      write_store_frame(kStoreHello, "another", ""),
      hello + write_store_frame(99, "", ""),
      hello + write_store_frame(kStoreSet, std::string(2000, 'k'), ""),
      "GET / HTTP/1.1\r\n\r\n",
  };
  for (const std::string& text : bad) {
    Socket s = Socket::connect_to(parse_endpoint(server.endpoint()), kDeadlineMs);
    const auto challenge = write_store_frame(kStoreChallenge, kStoreProtocol, "").size();
    std::string read(challenge, '\0');
    ASSERT_TRUE(s.recv_all(read.data(), static_cast<int64_t>(challenge), kDeadlineMs));
    s.send_all(text.data(), static_cast<int64_t>(text.size()));
    char byte;
    EXPECT_FALSE(s.recv_all(&byte, 1, kDeadlineMs)) << text;
  }
  EXPECT_THROW(std::ignore = good.wait_for("abort", 50), PeerError);
  good.set("key", "value");
  StoreClient other(server.endpoint(), kDeadlineMs);
  EXPECT_EQ(other.wait_for("key", kDeadlineMs), "value");
}

TEST(Store, AddressesAreChecked) {
  EXPECT_EQ(parse_endpoint("[::1]:80").host, "::1");
  EXPECT_EQ(parse_endpoint("node7:80").port, "80");
  EXPECT_THROW(parse_endpoint("node7"), UserError);
  EXPECT_THROW(parse_endpoint("node7:"), UserError);
  for (const char* port : {"0", "65536", "123456789012", "abc", "80x", "-1", " 80"})
    EXPECT_THROW(parse_endpoint(std::string("node7:") + port), UserError) << port;
  EXPECT_EQ(parse_endpoint("node7:65535").port, "65535");
  EXPECT_THROW(StoreServer("192.0.2.1"), UserError);  // of no interface
  const std::string gone = StoreServer().endpoint();
  EXPECT_THROW(StoreClient(gone, 50), PeerError);
}

}  // namespace
}  // namespace weft::testing
