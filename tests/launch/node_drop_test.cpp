// tests/launch/node_drop_test.cpp: an agent whose node is reported as lost while it still answers.
#include "base/error.h"
#include "launch/agent.h"
#include "launch/node_messages.h"
#include "tests/launch/node_job.h"

namespace weft {
namespace {

class NodeDrop : public testing::NodeJob {
 protected:
  AgentOptions options() const {
    AgentOptions options;
    options.join = endpoint_;
    options.secret_file = secret();
    return options;
  }
  static std::string host() {
    char name[256] = {};
    ::gethostname(name, sizeof name - 1);
    return name;
  }
  // Its agent, which stands still, does not reap it. A busy machine may be late to end it.
  static bool has_ended(pid_t rank) {
    std::string text;
    for (int i = 0; i < 1000 && text.find(") Z ") == std::string::npos; ++i) {
      if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      std::ifstream file(fmt::format("/proc/{}/stat", rank));
      std::getline(file, text);
    }
    return text.find(") Z ") != std::string::npos;
  }
  void end() {
    train_->send(SIGTERM);
    EXPECT_EQ(train_->wait().code(), 143) << train_->out();
  }
};

// It would answer for as long as it is asked. Its ranks have ended before others take their place.
TEST_F(NodeDrop, ASpareTakesThePlaceOfANodeThatIsReportedAsLost) {
  train({"train"});
  const auto lost = join();
  ASSERT_TRUE(all_train(4));
  const std::vector<pid_t> ranks = lost->children();
  ASSERT_EQ(ranks.size(), 2U);
  const auto spare = join();
  ASSERT_TRUE(train_->says("has joined as a spare"));
  EXPECT_EQ(report_lost_node(options(), host(), lost->pid()), 0);
  EXPECT_EQ(lost->wait().code(), 75);
  EXPECT_TRUE(lost->says("its node was reported as lost")) << lost->out();
  ASSERT_TRUE(train_->says("event node_lost 2 node 1, ")) << train_->out();
  EXPECT_TRUE(train_->says("was lost: its node was reported as lost")) << train_->out();
  for (const pid_t rank : ranks) EXPECT_EQ(::kill(rank, 0), -1);
  ASSERT_TRUE(spare->says("node 1 of 2: starting ranks 2 to 3")) << spare->out();
  ASSERT_TRUE(all_train(4, 2)) << train_->out();
  end();
  EXPECT_EQ(spare->wait().code(), 143);
}

// It has not heard that it has to leave. Until its lease has ended nobody takes its place.
TEST_F(NodeDrop, RanksOfADroppedAgentThatStandsStillEndBeforeTheNodeIsLost) {
  const std::map<std::string, std::string> silence = {{"SILENCE_MS", "4000"}};
  train({"train"}, silence);
  const auto lost = join(silence);
  ASSERT_TRUE(all_train(4));
  const std::vector<pid_t> ranks = lost->children();
  const auto spare = join(silence);
  ASSERT_TRUE(train_->says("has joined as a spare"));
  lost->send(SIGSTOP);
  EXPECT_EQ(report_lost_node(options(), host(), lost->pid()), 0);
  ASSERT_TRUE(train_->says("event node_lost 2 node 1, ")) << train_->out();
  for (const pid_t rank : ranks) EXPECT_TRUE(has_ended(rank)) << rank;
  ASSERT_TRUE(all_train(4, 2)) << train_->out();
  lost->send(SIGCONT);
  EXPECT_EQ(lost->wait().code(), 75);
  EXPECT_EQ(train_->count("has joined as a spare"), 1) << train_->out();
  end();
}

// Before the first start too: those that come meanwhile wait until it is lost, and lose nothing.
TEST_F(NodeDrop, APlaceOfADroppedAgentIsGivenAwayOnlyWhenItIsLost) {
  train({"train"}, {{"NODES", "3"}, {"SILENCE_MS", "2000"}});
  const auto lost = join();
  ASSERT_TRUE(train_->says("node 1 is ")) << train_->out();
  lost->send(SIGSTOP);
  EXPECT_EQ(report_lost_node(options(), host(), lost->pid()), 0);
  const auto one = join(), two = join();
  ASSERT_TRUE(all_train(6)) << train_->out();
  EXPECT_EQ(train_->count("was lost: its node was reported as lost"), 1) << train_->out();
  lost->send(SIGCONT);
  EXPECT_EQ(lost->wait().code(), 75);
  EXPECT_EQ(train_->count("event started"), 1) << train_->out();
  EXPECT_EQ(train_->count("event node_lost"), 0) << train_->out();
  end();
}

// As above, with an agent that keeps sending beats and comes back.
TEST_F(NodeDrop, ADroppedAgentIsNotAnsweredAndMayNotJoinAgain) {
  train({"train"}, {{"SILENCE_MS", "4000"}});
  const auto other = join();
  ASSERT_TRUE(all_train(4));
  Hello hello{"elsewhere", 4711, 1, false, "127.0.0.1:9", "one"};
  const auto connect = [&] {
    Channel channel =
        Channel::connect(parse_endpoint(endpoint_), Secret::from_file(secret()),
                         Identity{kSupervisorService}, node_message_bounds(), kLongMs);
    channel.send(static_cast<uint8_t>(NodeMessage::kHello), hello.write(), kLongMs);
    return channel;
  };
  const auto kind_of = [](const Frame& frame) { return static_cast<NodeMessage>(frame.kind); };
  Channel first = connect();
  EXPECT_EQ(kind_of(first.receive(kLongMs)), NodeMessage::kWelcome);
  EXPECT_EQ(report_lost_node(options(), hello.host, hello.pid), 0);
  EXPECT_EQ(kind_of(first.receive(kLongMs)), NodeMessage::kLeave);
  try {
    for (int i = 0; i < 800; ++i) {
      first.send(static_cast<uint8_t>(NodeMessage::kBeat), Beat{}.write(), kLongMs);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_FALSE(first.try_receive());
    }
    ADD_FAILURE() << "it is still there after 40 s";
  } catch (const PeerError&) {  // the supervisor has closed the connection
  }
  EXPECT_TRUE(train_->says("elsewhere (")) << train_->out();
  EXPECT_TRUE(train_->says(") has left")) << train_->out();
  hello.slots = "127.0.0.1:10";  // an agent has another slot service each time it joins
  const Frame answer = connect().receive(kLongMs);
  ASSERT_EQ(kind_of(answer), NodeMessage::kLeave);
  EXPECT_EQ(Verdict::read(answer.payload).exit_code, 75);
  hello.id = "another";  // a process in a container that was started again
  EXPECT_EQ(kind_of(connect().receive(kLongMs)), NodeMessage::kWelcome);
  EXPECT_EQ(train_->count("event node_lost"), 0) << train_->out();
  end();
}

TEST_F(NodeDrop, WhatIsNoAgentOfTheRunIsNotDropped) {
  train({"train"});
  const auto agent = join();
  ASSERT_TRUE(all_train(4));
  ASSERT_EQ(train_->children().size(), 1U);
  EXPECT_EQ(report_lost_node(options(), "elsewhere", agent->pid()), 2);
  EXPECT_EQ(report_lost_node(options(), host(), ::getpid()), 2);
  EXPECT_EQ(report_lost_node(options(), host(), train_->children()[0]), 2) << "the first node's";
  AgentOptions stranger = options();
  stranger.secret_file = folder_ / "other";
  Secret::random().write_new_file(stranger.secret_file);
  EXPECT_THROW(static_cast<void>(report_lost_node(stranger, host(), agent->pid())), UserError);
  end();
  EXPECT_EQ(agent->wait().code(), 143);
  EXPECT_EQ(train_->count("was lost"), 0) << train_->out();
}

}  // namespace
}  // namespace weft
