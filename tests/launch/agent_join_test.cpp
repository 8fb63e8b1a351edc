// tests/launch/agent_join_test.cpp: an agent, and what it may find at the address that it joins.
#include <thread>

#include "launch/node_messages.h"
#include "net/channel_acceptor.h"
#include "net/handshake.h"
#include "net/socket.h"
#include "tests/launch/node_job.h"

namespace weft {
namespace {

class AgentJoin : public testing::NodeJob {
 protected:
  AgentJoin() { endpoint_ = listener_->local_endpoint(); }
  // The next connection. The listener may not have it yet.
  Socket next() const {
    for (;;) {
      Socket socket = listener_->accept_one();
      if (socket.fd() >= 0) return socket;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  // As a supervisor that ends within a handshake does, or one with another secret.
  static void close_after_answer(Socket socket) {
    const ServerHandshake handshake(Secret::random(), {"supervisor"});
    std::string answer(kAnswerBytes, '\0');
    socket.send_all(handshake.challenge().data(), kChallengeBytes);
    EXPECT_TRUE(socket.recv_all(answer.data(), kAnswerBytes, kLongMs));
  }
  void welcome(Socket socket) const {
    ServerHandshake handshake(Secret::from_file(secret()), {"supervisor"});
    std::string answer(kAnswerBytes, '\0');
    socket.send_all(handshake.challenge().data(), kChallengeBytes);
    EXPECT_TRUE(socket.recv_all(answer.data(), kAnswerBytes, kLongMs));
    EXPECT_EQ(handshake.receive(answer), ServerHandshake::State::kAccepted);
    socket.send_all(handshake.verdict().data(), kVerdictBytes);
  }

  std::unique_ptr<Socket> listener_ = std::make_unique<Socket>(Socket::listen_on("127.0.0.1", "0"));
};

TEST_F(AgentJoin, ARunThatEndsWhileItsAgentComesBackIsNoWrongInput) {
  const auto agent = join();
  welcome(next());  // and loses it
  close_after_answer(next());
  close_after_answer(next());
  listener_.reset();
  EXPECT_EQ(agent->wait().code(), 75) << agent->out();
  EXPECT_TRUE(agent->says("cannot be reached within 3 s")) << agent->out();
}

TEST_F(AgentJoin, ARunThatEndsDuringTheFirstHandshakeIsNoWrongInput) {
  const auto agent = join();
  close_after_answer(next());
  listener_.reset();
  EXPECT_EQ(agent->wait().code(), 75) << agent->out();
}

// By which it is known where it was asked to leave, and joins again since it has not heard of it.
TEST_F(AgentJoin, AnAgentThatJoinsAgainHasTheSameIdAndAnotherSlotService) {
  ChannelAcceptor acceptor("127.0.0.1", "0", Secret::from_file(secret()),
                           Identity{kSupervisorService}, node_message_bounds());
  endpoint_ = acceptor.endpoint();
  const auto next_hello = [&] {
    for (;;) {
      std::vector<Channel> channels = acceptor.accept_known();
      if (!channels.empty()) return Hello::read(channels[0].receive(kLongMs).payload);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  const auto agent = join();
  const Hello first = next_hello(), again = next_hello();  // the connection is closed in between
  EXPECT_EQ(first.id.size(), 64U);                         // of 256 random bits
  EXPECT_EQ(again.id, first.id);
  EXPECT_NE(again.slots, first.slots);
  const auto other = join();
  Hello hello = next_hello();
  while (hello.pid != other->pid()) hello = next_hello();
  EXPECT_NE(hello.id, first.id);
}

TEST_F(AgentJoin, ASecretThatIsRefusedTwiceIsWrong) {
  const auto agent = join();
  close_after_answer(next());
  close_after_answer(next());
  EXPECT_EQ(agent->wait().code(), 2) << agent->out();
  EXPECT_TRUE(agent->says("closed the connection during the handshake")) << agent->out();
}

TEST_F(AgentJoin, AProgramThatIsNoRunIsNamedAsSuch) {
  const auto agent = join();  // no process accepts: only the kernel completes the connection
  EXPECT_EQ(agent->wait().code(), 75);
  EXPECT_TRUE(agent->says("no run of weft answers at " + endpoint_ + " within 3 s"))
      << agent->out();
}

TEST_F(AgentJoin, APortThatIsNoneIsWrongInput) {
  for (const char* port : {"0", "65536", "99999", "abc", "-1"}) {
    endpoint_ = fmt::format("127.0.0.1:{}", port);
    const auto agent = join();
    EXPECT_EQ(agent->wait().code(), 2) << agent->out();
    EXPECT_TRUE(agent->says("a port is a number from 1 to 65535")) << agent->out();
  }
}

TEST_F(AgentJoin, AnotherBuildOfTheSameVersionIsRefused) {
  train({"report"}, {{"BUILD", "5f3a9c01b2de"}, {"JOIN_MS", "8000"}});
  const auto other = join();
  EXPECT_EQ(other->wait().code(), 2) << other->out();
  EXPECT_TRUE(other->says("5f3a9c01b2de and refuses other builds; this is weft ")) << other->out();
  EXPECT_TRUE(train_->says("is another build of weft: ")) << train_->out();
  const auto same = join({{"BUILD", "5f3a9c01b2de"}});
  EXPECT_EQ(train_->wait().code(), 0) << train_->out();
  EXPECT_EQ(same->wait().code(), 0) << same->out();
}

TEST_F(AgentJoin, ASignalWhileNodesAreMissingIsNoLoss) {
  train({"report"});
  ASSERT_TRUE(train_->says("event joined 0 ")) << train_->out();
  train_->send(SIGTERM);
  EXPECT_EQ(train_->wait().code(), 143) << train_->out();
  EXPECT_EQ(train_->count("was lost"), 0) << train_->out();
}

TEST_F(AgentJoin, WhoComesTooLateIsNotSentToAPortThatIsGone) {
  train({"report"}, {{"JOIN_MS", "1000"}});
  EXPECT_EQ(train_->wait().code(), 75);
  EXPECT_TRUE(train_->says("one is missing: start the run again")) << train_->out();
  EXPECT_TRUE(train_->says("launch.port")) << train_->out();
  EXPECT_EQ(train_->count(endpoint_), 2) << "when it listens and waits, not when it ends";
}

TEST_F(AgentJoin, WhereAnEngineHasNamedTheNodesThoseThatAreMissingAreNamed) {
  char host[256] = {};
  ASSERT_EQ(::gethostname(host, sizeof host - 1), 0);
  const std::string names = fmt::format("{}.cluster.org,n[07-08]", host);
  train({"report"}, {{"JOIN_MS", "1000"}, {"NODES", "3"}, {"NODE_NAMES", names}});
  EXPECT_EQ(train_->wait().code(), 75);
  EXPECT_TRUE(train_->says("2 are missing (n07, n08): can they reach " + endpoint_))
      << train_->out();
}

}  // namespace
}  // namespace weft
