// tests/net/channel_acceptor_test.cpp: agents get in while strangers try everything.
#include "net/channel_acceptor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "base/error.h"
#include "tests/net/helpers.h"

namespace weft::testing {
namespace {

const FrameBounds kAgentBounds = {{1, 1000}};
const Identity kSelf = {"supervisor", "1.2.3"};

// A supervisor's loop in a thread: answers every message of every agent with its own text.
class Echo {
 public:
  explicit Echo(const Secret& secret, PendingLimits limits = {})
      : acceptor_("127.0.0.1", "0", secret, kSelf, kAgentBounds, limits),
        endpoint_(acceptor_.endpoint()),
        thread_([this] { work(); }) {}
  ~Echo() {
    stop_ = true;
    thread_.join();
  }
  Endpoint endpoint() const { return parse_endpoint(endpoint_); }
  // Ends the loop.
  std::vector<std::string> refusals() {
    stop_ = true;
    thread_.join();
    thread_ = std::thread([] {});
    return refusals_;
  }

 private:
  void work() {
    std::vector<Channel> agents;
    std::vector<pollfd> wanted;
    while (!stop_) {
      wanted.clear();
      acceptor_.add_descriptors(&wanted);
      for (const Channel& agent : agents) wanted.push_back({agent.fd(), POLLIN, 0});
      const int left = acceptor_.until_deadline_ms();
      ::poll(wanted.data(), wanted.size(), left < 0 ? 20 : std::min(left, 20));
      for (Channel& agent : acceptor_.accept_known()) agents.push_back(std::move(agent));
      for (std::string& why : acceptor_.take_refusals()) refusals_.push_back(std::move(why));
      std::erase_if(agents, [](Channel& agent) { return !answer(&agent); });
    }
  }
  static bool answer(Channel* agent) {
    try {
      while (const auto frame = agent->try_receive()) agent->queue(1, frame->payload);
      return true;
    } catch (const PeerError&) {
      return false;
    }
  }

  ChannelAcceptor acceptor_;
  std::string endpoint_;
  std::vector<std::string> refusals_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

Channel join(const Echo& server, const Secret& secret, const Identity& self = kSelf) {
  return Channel::connect(server.endpoint(), secret, self, kAgentBounds, kLongMs);
}

void expect_served(const Echo& server, const Secret& secret) {
  Channel agent = join(server, secret);
  agent.send(1, "hello", kLongMs);
  EXPECT_EQ(agent.receive(kLongMs).payload, "hello");
}

// Whether the server closes the connection after these bytes.
bool is_closed_after(const Echo& server, std::string_view bytes, int64_t deadline_ms = kLongMs) {
  Socket socket = Socket::connect_to(server.endpoint(), kLongMs);
  std::string challenge(kChallengeBytes, '\0');
  EXPECT_TRUE(socket.recv_all(challenge.data(), kChallengeBytes, kLongMs));
  socket.send_all(bytes.data(), static_cast<int64_t>(bytes.size()));
  char byte;
  return !socket.recv_all(&byte, 1, deadline_ms);
}

TEST(ChannelAcceptor, ManyAgentsInOneThread) {
  const Secret secret = Secret::random();
  Echo server(secret);
  std::vector<std::thread> agents;
  for (int i = 0; i < 200; ++i) {
    agents.emplace_back([&, i] {
      Channel agent = join(server, secret);
      for (int k = 0; k < 20; ++k) {
        agent.send(1, fmt::format("{} {}", i, k), kLongMs);
        EXPECT_EQ(agent.receive(kLongMs).payload, fmt::format("{} {}", i, k));
      }
    });
  }
  for (std::thread& agent : agents) agent.join();
  EXPECT_TRUE(server.refusals().empty());
}

TEST(ChannelAcceptor, WithoutTheSecretTheConnectionIsClosed) {
  const Secret secret = Secret::random();
  Echo server(secret);
  const std::string why = complaint<UserError>([&] { join(server, Secret::random()); });
  EXPECT_NE(why.find("closed the connection during the handshake"), std::string::npos) << why;
  EXPECT_TRUE(is_closed_after(server, "GET / HTTP/1.1\r\n\r\n"));
  EXPECT_TRUE(is_closed_after(server, std::string(100'000, '\0')));
  EXPECT_TRUE(is_closed_after(server, std::string(kHandshakeMagic).append(96, 'x')));
  expect_served(server, secret);
  const auto refusals = server.refusals();
  ASSERT_EQ(refusals.size(), 4U);
  EXPECT_TRUE(refusals[0].starts_with("127.0.0.1:"));
  EXPECT_NE(refusals[0].find("does not know this run's secret"), std::string::npos);
  EXPECT_NE(refusals[1].find("does not speak this protocol"), std::string::npos);
}

TEST(ChannelAcceptor, ARecordedHandshakeDoesNotOpenAnother) {
  const Secret secret = Secret::random();
  const Echo server(secret);
  Socket socket = Socket::connect_to(server.endpoint(), kLongMs);
  std::string challenge(kChallengeBytes, '\0'), verdict(kVerdictBytes, '\0');
  ASSERT_TRUE(socket.recv_all(challenge.data(), kChallengeBytes, kLongMs));
  ClientHandshake client(secret, kSelf, "the supervisor");
  const std::string answer = client.answer(challenge);
  socket.send_all(answer.data(), kAnswerBytes);
  ASSERT_TRUE(socket.recv_all(verdict.data(), kVerdictBytes, kLongMs));
  const std::string frame =
      FrameWriter(client.finish(verdict).send, kAgentBounds).write(1, "first");
  socket.send_all(frame.data(), static_cast<int64_t>(frame.size()));
  std::string reply(kFrameHeaderBytes + 5 + kFrameTagBytes, '\0');
  ASSERT_TRUE(socket.recv_all(reply.data(), static_cast<int64_t>(reply.size()), kLongMs));
  EXPECT_TRUE(is_closed_after(server, answer));
  EXPECT_TRUE(is_closed_after(server, answer + frame));
  expect_served(server, secret);
}

TEST(ChannelAcceptor, SilentAndTruncatedHandshakesEndInTime) {
  const Secret secret = Secret::random();
  Echo server(secret, {.handshake_ms = 100});
  EXPECT_TRUE(is_closed_after(server, ""));
  EXPECT_TRUE(is_closed_after(server, std::string(kHandshakeMagic).append(95, 'x')));
  expect_served(server, secret);
  const auto refusals = server.refusals();
  ASSERT_EQ(refusals.size(), 2U);
  EXPECT_NE(refusals[1].find("has not answered in time"), std::string::npos);
}

// Strangers that keep the port full of silent connections delay an agent, no more.
TEST(ChannelAcceptor, AgentsGetPastACrowdOfStrangers) {
  const Secret secret = Secret::random();
  Echo server(secret, {.max_pending = 10, .handshake_ms = 10 * kLongMs, .crowded_ms = 50});
  std::vector<Socket> crowd;
  for (int i = 0; i < 40; ++i) crowd.push_back(Socket::connect_to(server.endpoint(), kLongMs));
  expect_served(server, secret);
  const auto refusals = server.refusals();
  EXPECT_GE(refusals.size(), 31U);
  EXPECT_NE(refusals[0].find("has not answered in time"), std::string::npos);
}

// More agents at once than may be pending: they wait, nobody is dropped.
TEST(ChannelAcceptor, AStampedeOfAgents) {
  const Secret secret = Secret::random();
  Echo server(secret, {.max_pending = 3, .crowded_ms = kLongMs});
  std::vector<std::thread> agents;
  for (int i = 0; i < 50; ++i) agents.emplace_back([&] { expect_served(server, secret); });
  for (std::thread& agent : agents) agent.join();
  EXPECT_TRUE(server.refusals().empty());
}

TEST(ChannelAcceptor, AgentsOfAnotherWeftVersionAreTold) {
  const Secret secret = Secret::random();
  Echo server(secret);
  const std::string why = complaint<UserError>([&] {
    join(server, secret, {"supervisor", "0.9.0"});
  });
  EXPECT_NE(why.find("is weft 1.2.3 and refuses other builds; this is weft 0.9.0"),
            std::string::npos)
      << why;
  const auto refusals = server.refusals();
  ASSERT_EQ(refusals.size(), 1U);
  EXPECT_NE(refusals[0].find("is another build of weft: 0.9.0 there, 1.2.3 here"),
            std::string::npos);
}

// Who listens at the address but does not know the secret learns nothing that opens the real one.
TEST(ChannelAcceptor, AFalseServerIsFound) {
  const Secret secret = Secret::random();
  const Socket listener = Socket::listen_on("127.0.0.1", "0");
  std::thread thief([&] {
    Socket socket = listener.accept_one();
    const ServerHandshake handshake(Secret::random(), kSelf);
    socket.send_all(handshake.challenge().data(), kChallengeBytes);
    std::string answer(kAnswerBytes, '\0');
    EXPECT_TRUE(socket.recv_all(answer.data(), kAnswerBytes, kLongMs));
    socket.send_all(std::string(kVerdictBytes, '\1').data(), kVerdictBytes);
  });
  const auto connect = [&] {
    Channel::connect(parse_endpoint(listener.local_endpoint()), secret, kSelf, kAgentBounds,
                     kLongMs);
  };
  const std::string why = complaint<UserError>(connect);
  EXPECT_NE(why.find("does not know this run's secret: it is not of this run"), std::string::npos);
  thief.join();
}

TEST(ChannelAcceptor, RandomBytesFromStrangersAndAgents) {
  const Secret secret = Secret::random();
  const Echo server(secret);
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    std::string bytes(105 + random() % 400, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    if (i % 2 == 0) bytes.replace(0, kHandshakeMagic.size(), kHandshakeMagic);
    EXPECT_TRUE(is_closed_after(server, bytes));
    if (i % 10 != 0) continue;
    const Channel agent = join(server, secret);  // known, then it goes mad
    Socket behind(::dup(agent.fd()));
    behind.send_all(bytes.data(), static_cast<int64_t>(bytes.size()));
    char byte;
    EXPECT_FALSE(behind.recv_all(&byte, 1, kLongMs));
  }
  expect_served(server, secret);
}

TEST(ChannelAcceptor, ATakenPortIsAUserError) {
  const Secret secret = Secret::random();
  const ChannelAcceptor first("127.0.0.1", "0", secret, kSelf, kAgentBounds);
  const std::string port = parse_endpoint(first.endpoint()).port;
  const auto again = [&] { ChannelAcceptor("127.0.0.1", port, secret, kSelf, kAgentBounds); };
  EXPECT_NE(complaint<UserError>(again).find("Address already in use"), std::string::npos);
}

}  // namespace
}  // namespace weft::testing
