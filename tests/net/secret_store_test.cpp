// tests/net/secret_store_test.cpp: the store under a secret: the same service, for those who know
// it.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "net/handshake.h"
#include "net/store.h"
#include "net/store_frame.h"
#include "net/store_link.h"
#include "tests/net/helpers.h"

namespace weft::testing {
namespace {

bool is_closed_after(const StoreServer& server, const std::string& bytes) {
  Socket socket = Socket::connect_to(parse_endpoint(server.endpoint()), kLongMs);
  std::string challenge(kChallengeBytes, '\0');
  EXPECT_TRUE(socket.recv_all(challenge.data(), kChallengeBytes, kLongMs));
  EXPECT_TRUE(challenge.starts_with(kHandshakeMagic));
  socket.send_all(bytes.data(), static_cast<int64_t>(bytes.size()));
  char byte;
  return !socket.recv_all(&byte, 1, kLongMs);
}

TEST(SecretStore, KeysWillsAndFarewells) {
  const Secret secret = Secret::random();
  auto server = std::make_unique<StoreServer>("127.0.0.1", "0", &secret);
  StoreClient a(server->endpoint(), kLongMs, &secret), b(server->endpoint(), kLongMs, &secret);
  std::thread later([&a] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    a.set("key", std::string("first\0value", 11));
    a.set("key", "second");
    a.set("long", std::string(60'000, 'x'));
  });
  EXPECT_EQ(b.wait_for("key", kLongMs), std::string("first\0value", 11));
  EXPECT_EQ(b.wait_for("long", kLongMs), std::string(60'000, 'x'));
  later.join();
  {
    StoreClient polite(server->endpoint(), kLongMs, &secret);
    polite.set_last_will("will", "of the polite");
  }
  EXPECT_THROW(std::ignore = b.wait_for("will", 50), PeerError);
  std::thread end([&] { server.reset(); });
  EXPECT_EQ(a.wait_for("never", kLongMs), std::nullopt);
  end.join();
}

TEST(SecretStore, ManyClientsMeet) {
  const Secret secret = Secret::random();
  const StoreServer server("127.0.0.1", "0", &secret);
  std::vector<std::thread> clients;
  for (int i = 0; i < 200; ++i) {
    clients.emplace_back([&, i] {
      StoreClient client(server.endpoint(), kLongMs, &secret);
      client.set(fmt::format("agent/{}", i), "here");
      EXPECT_EQ(client.wait_for(fmt::format("agent/{}", (i + 1) % 200), kLongMs), "here");
    });
  }
  for (std::thread& client : clients) client.join();
}

// The connection breaks under a client: a forged frame is one way to break it.
TEST(SecretStore, AForgedFrameEndsTheConnectionAndExecutesTheWill) {
  const Secret secret = Secret::random();
  const StoreServer server("127.0.0.1", "0", &secret);
  StoreClient reader(server.endpoint(), kLongMs, &secret);
  Socket socket = Socket::connect_to(parse_endpoint(server.endpoint()), kLongMs);
  const SessionKeys keys = shake_hands(&socket, secret, kStoreIdentity, "the store", kLongMs);
  FrameWriter writer(keys.send, kStoreBounds);
  const auto send = [&](uint8_t kind, const std::string& key, const std::string& value) {
    const std::string frame = write_store_frame(kind, key, value).substr(4);
    const std::string sealed = writer.write(kStoreMessage, frame);
    socket.send_all(sealed.data(), static_cast<int64_t>(sealed.size()));
    return sealed;
  };
  const std::string will = send(kStoreLastWill, "will", "of the attacked");
  send(kStoreSet, "key", "value");
  EXPECT_EQ(reader.wait_for("key", kLongMs), "value");
  socket.send_all(will.data(), static_cast<int64_t>(will.size()));  // replayed
  EXPECT_EQ(reader.wait_for("will", kLongMs), "of the attacked");
  char byte;
  EXPECT_FALSE(socket.recv_all(&byte, 1, kLongMs));
}

TEST(SecretStore, StrangersGetAClosedConnection) {
  const Secret secret = Secret::random(), another = Secret::random();
  const StoreServer server("127.0.0.1", "0", &secret);
  StoreClient good(server.endpoint(), kLongMs, &secret);
  const auto with_another = [&] { StoreClient(server.endpoint(), kLongMs, &another); };
  EXPECT_NE(complaint<UserError>(with_another).find("closed the connection during the handshake"),
            std::string::npos);
  const auto without = [&] { StoreClient(server.endpoint(), kLongMs); };
  EXPECT_NE(complaint<PeerError>(without).find("asks for a secret that was not given"),
            std::string::npos);
  EXPECT_TRUE(is_closed_after(server, write_store_frame(kStoreHello, kStoreProtocol, "")));
  EXPECT_TRUE(is_closed_after(server, write_store_frame(kStoreSet, "abort", "at once")));
  EXPECT_TRUE(is_closed_after(server, std::string("\xff\xff\xff\x7f", 4)));
  EXPECT_TRUE(is_closed_after(server, std::string(300'000, '\0')));
  EXPECT_THROW(std::ignore = good.wait_for("abort", 50), PeerError);
}

TEST(SecretStore, AClientWithASecretRefusesAStoreWithoutOne) {
  const StoreServer server;
  const Secret secret = Secret::random();
  const auto connect = [&] { StoreClient(server.endpoint(), kLongMs, &secret); };
  EXPECT_NE(complaint<UserError>(connect).find("does not ask for this run's secret"),
            std::string::npos);
}

TEST(SecretStore, LyingMessagesOfAKnownClient) {
  const Secret secret = Secret::random();
  const StoreServer server("127.0.0.1", "0", &secret);
  const std::string bad[] = {"", "\3", std::string("\3\xff\xff", 3), std::string("\x63\0\0", 3),
                             write_store_frame(kStoreSet, std::string(2000, 'k'), "").substr(4)};
  for (const std::string& message : bad) {
    Socket socket = Socket::connect_to(parse_endpoint(server.endpoint()), kLongMs);
    const SessionKeys keys = shake_hands(&socket, secret, kStoreIdentity, "the store", kLongMs);
    const std::string frame = FrameWriter(keys.send, kStoreBounds).write(kStoreMessage, message);
    socket.send_all(frame.data(), static_cast<int64_t>(frame.size()));
    char byte;
    EXPECT_FALSE(socket.recv_all(&byte, 1, kLongMs));
  }
  StoreClient good(server.endpoint(), kLongMs, &secret);
  good.set("key", "value");
  EXPECT_EQ(good.wait_for("key", kLongMs), "value");
}

}  // namespace
}  // namespace weft::testing
