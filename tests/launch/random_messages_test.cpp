// tests/launch/random_messages_test.cpp: peers that know the secret and say anything, in any order.
//
// Every message is well-formed, so that it reaches the state machines of supervisor and agent; the
// fuzzers (tests/fuzz) have those that are not. FULL in the environment: many more rounds.
#include <poll.h>

#include <cstdlib>
#include <random>
#include <set>
#include <utility>

#include "base/error.h"
#include "launch/node_messages.h"
#include "launch/park_messages.h"
#include "net/channel_acceptor.h"
#include "net/store.h"
#include "tests/launch/node_job.h"

namespace weft {
namespace {

using Message = std::pair<NodeMessage, std::string>;

class Dice {
 public:
  explicit Dice(unsigned seed) : engine_(seed) {}
  int64_t below(int64_t count) { return static_cast<int64_t>(engine_()) % count; }
  bool one_in(int64_t count) { return below(count) == 0; }
  template <typename T>
  T any(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<int64_t>(values.size()))];
  }
  // Mostly of what the run has had.
  int64_t generation() { return any<int64_t>({0, 0, 0, 1, 1, 2, INT64_MAX}); }
  std::vector<int64_t> steps() {
    std::vector<int64_t> all(static_cast<size_t>(below(3)));
    for (int64_t& step : all) step = below(9);
    return all;
  }

 private:
  std::mt19937 engine_;
};

int num_rounds() { return std::getenv("FULL") != nullptr ? 60 : 2; }

Hello hello_of(Dice& dice) {
  return {dice.one_in(2) ? "n1" : "n2", 1 + dice.below(9), 1, dice.one_in(10), "127.0.0.1:9",
          std::to_string(dice.below(9))};
}

Beat beat_of(Dice& dice) {
  Beat beat{dice.generation(), dice.below(9),    dice.one_in(3), dice.one_in(9),
            dice.one_in(2),    dice.below(1000), dice.one_in(2)};
  for (int64_t i = dice.below(4); i > 0; --i) {
    RankStatus rank;
    rank.pid = static_cast<pid_t>(dice.below(100));
    rank.is_running = dice.one_in(2);
    rank.resident_bytes = rank.anonymous_bytes = 0;
    beat.ranks.push_back(rank);
  }
  return beat;
}

// Exit 70 is left out: whoever ends with it has found a bug of its own.
RankEnd end_of(Dice& dice) {
  const bool is_killed = dice.one_in(2);
  return {dice.generation(),
          dice.any<int64_t>({0, 1, 2, 2, 3, 3, 4, kMaxRanks - 1}),
          is_killed ? 0 : dice.any({0, 1, 2, 75, 143}),
          is_killed ? dice.any({SIGKILL, SIGSEGV}) : 0,
          dice.one_in(2),
          "an end"};
}

Message from_agent(Dice& dice) {
  switch (dice.below(10)) {
    case 0:
      return {NodeMessage::kLine, OutputLine{dice.below(5), dice.one_in(2), "a line\1"}.write()};
    case 1:
    case 2:
      return {NodeMessage::kEnded, end_of(dice).write()};
    case 3:
      return {NodeMessage::kRefused,
              Verdict{dice.generation(), dice.any({1, 2, 75}), "cannot"}.write()};
    case 4:
      return {NodeMessage::kSignal, write_number(dice.any<int64_t>({0, SIGCHLD, SIGKILL, 999}))};
    case 5:
      return {NodeMessage::kStopping, write_number(dice.below(2))};
    case 6:
      return {NodeMessage::kParked, Parked{dice.generation(), "a reason", dice.steps(),
                                           dice.steps(), dice.one_in(4) ? "a fault" : ""}
                                        .write()};
    case 7:
      return {NodeMessage::kHung, Hung{dice.generation(), dice.below(5), "it hangs\nmain"}.write()};
    default:
      return {NodeMessage::kBeat, beat_of(dice).write()};
  }
}

class RandomMessages : public testing::NodeJob {
 protected:
  static void say(Channel& to, const Message& message) {
    to.send(static_cast<uint8_t>(message.first), message.second, 5000);
  }
  // Up to three agents, of which now and then one leaves or breaks the protocol. False: nobody
  // listens any more.
  bool disturb_supervisor(Dice& dice) {
    std::unique_ptr<Channel>& agent = agents_[static_cast<size_t>(dice.below(3))];
    try {
      if (!agent) {
        agent = std::make_unique<Channel>(
            Channel::connect(parse_endpoint(endpoint_), Secret::from_file(secret()),
                             Identity{kSupervisorService}, node_message_bounds(), 5000));
        if (dice.one_in(8)) {
          const Hello hello = hello_of(dice);
          say(*agent, {NodeMessage::kDrop, Drop{hello.host, hello.pid}.write()});
        }
        say(*agent, {NodeMessage::kHello, hello_of(dice).write()});
      } else if (dice.one_in(30)) {
        agent.reset();
      } else {
        say(*agent, dice.one_in(40) ? Message{NodeMessage::kHello, hello_of(dice).write()}
                                    : from_agent(dice));
        while (agent->try_receive()) {
        }
      }
    } catch (const PeerError&) {  // it has been closed
      const bool is_there = agent != nullptr;
      agent.reset();
      return is_there;
    } catch (const UserError&) {  // within the handshake
      return false;
    }
    return true;
  }
  int end_supervisor() {
    for (auto& agent : agents_) agent.reset();
    for (int i = 0; i < 2; ++i) {
      train_->send(SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return train_->wait().code();
  }

  Message from_supervisor(Dice& dice) {
    switch (dice.below(9)) {
      case 0:
      case 1:
        return {NodeMessage::kStart, start_of(dice).write()};
      case 2:
        return {NodeMessage::kKill, write_number(dice.generation())};
      case 3:
        return {NodeMessage::kStop, write_number(dice.any<int64_t>({SIGTERM, SIGINT, SIGUSR1}))};
      case 4:
      case 5:
        return {NodeMessage::kPark,
                Park{dice.generation(), "a reason", dice.one_in(2), dice.one_in(3)}.write()};
      case 6:
        return {NodeMessage::kResume,
                Resume{1 + dice.below(3), dice.below(9), new_store()}.write()};
      case 7:
        return {NodeMessage::kAlive, ""};
      default:
        return {NodeMessage::kWelcome, ""};
    }
  }
  NodeStart start_of(Dice& dice) {
    NodeStart start;
    start.generation = dice.below(3);
    start.num_nodes = dice.one_in(3) ? 2 : 1;
    start.node = dice.below(start.num_nodes);
    start.ranks_per_node = 2;
    start.deadline_ms = 5000;
    start.argv = {WEFT_RANK_PROGRAM, "2", "train"};
    start.directory = dice.one_in(9) ? "/nowhere" : "/";
    start.store = new_store();
    start.has_saved = dice.one_in(2);
    start.has_snapshots = dice.one_in(2);
    if (start.has_snapshots && dice.one_in(4)) {
      start.step = dice.below(9);
      start.copies_at = "127.0.0.1:9";
    }
    return start;
  }
  std::string new_store() {
    const Secret known = Secret::from_file(secret());
    stores_.push_back(std::make_unique<StoreServer>("127.0.0.1", "0", &known));
    return stores_.back()->endpoint();
  }
  // The agent's next connection; null where it does not come.
  static std::unique_ptr<Channel> next(ChannelAcceptor& acceptor) {
    for (int i = 0; i < 2000; ++i) {
      std::vector<Channel> known = acceptor.accept_known();
      if (!known.empty()) return std::make_unique<Channel>(std::move(known.front()));
      std::vector<pollfd> wanted;
      acceptor.add_descriptors(&wanted);
      ::poll(wanted.data(), wanted.size(), 10);
    }
    return nullptr;
  }
  // Until the agent closes the connection, or it has had enough.
  void disturb_agent(Channel& agent, Dice& dice) {
    try {
      say(agent, {NodeMessage::kWelcome, ""});
      for (int64_t i = 5 + dice.below(20); i > 0; --i) {
        say(agent, from_supervisor(dice));
        while (const auto frame = agent.try_receive()) {
          if (frame->kind == static_cast<uint8_t>(NodeMessage::kBeat) && !dice.one_in(5))
            say(agent, {NodeMessage::kAlive, ""});
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(dice.below(20)));
      }
    } catch (const PeerError&) {
    }
  }

  std::unique_ptr<Channel> agents_[3];
  std::vector<std::unique_ptr<StoreServer>> stores_;
};

TEST_F(RandomMessages, ASupervisorEndsWithACodeOfItsOwn) {
  const std::set<int> codes = {0, 1, 2, 75, 143};
  for (int round = 0; round < num_rounds(); ++round) {
    const auto seed = static_cast<unsigned>(round + 1);
    Dice dice(seed);
    train({"train"}, {{"SNAPSHOTS", dice.one_in(2) ? "1" : ""},
                      {"ELASTIC", dice.one_in(2) ? "21" : ""},
                      {"JOIN_MS", "2000"}});
    for (int i = 0; i < 200 && disturb_supervisor(dice); ++i) {
    }
    const int code = end_supervisor();
    EXPECT_TRUE(codes.count(code) == 1) << "seed " << seed << ", " << code << train_->out();
    train_.reset();
  }
}

TEST_F(RandomMessages, AnAgentStaysUntilItIsSentAway) {
  for (int round = 0; round < num_rounds(); ++round) {
    const auto seed = static_cast<unsigned>(round + 1);
    Dice dice(seed);
    ChannelAcceptor acceptor("127.0.0.1", "0", Secret::from_file(secret()),
                             Identity{kSupervisorService}, node_message_bounds());
    endpoint_ = acceptor.endpoint();
    const auto agent = join();
    for (int i = 0; i < 3; ++i) {
      const auto channel = next(acceptor);
      ASSERT_TRUE(channel) << "seed " << seed << agent->out();
      disturb_agent(*channel, dice);
    }
    const auto last = next(acceptor);
    ASSERT_TRUE(last) << "seed " << seed << agent->out();
    say(*last, {NodeMessage::kLeave, Verdict{0, 3, "the end"}.write()});
    EXPECT_EQ(agent->wait().code(), 3) << "seed " << seed << agent->out();
  }
}

}  // namespace
}  // namespace weft
