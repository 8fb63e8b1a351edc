// benchmarks/agent_swarm.cpp: many agents without ranks in one process, for
// benchmarks/agents_bench.py.
//
//   agent_swarm HOST:PORT SECRET_FILE COUNT SECONDS COMMIT
//
// To the supervisor they are agents of as many nodes: each has its channel, says hello, is
// welcomed, and sends a beat per second. Prints how long the joining took, then beats until the
// time is up.
#include <fmt/core.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/version.h"
#include "launch/node_messages.h"
#include "net/channel.h"

namespace {

using namespace weft;
using Clock = std::chrono::steady_clock;

constexpr int64_t kDeadlineMs = 60'000;
constexpr int kThreads = 8;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::vector<std::optional<Channel>> join(const Endpoint& endpoint, const Secret& secret,
                                         size_t count) {
  std::vector<std::optional<Channel>> all(count);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < count; i += kThreads) {
        all[i].emplace(Channel::connect(endpoint, secret, Identity{kSupervisorService},
                                        node_message_bounds(), kDeadlineMs));
        Hello hello;
        hello.host = fmt::format("node{}", i);
        hello.pid = ::getpid();
        hello.id = hello.host;
        queue_message(&*all[i], NodeMessage::kHello, hello.write());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& channel : all) static_cast<void>(channel->receive(kDeadlineMs));  // its welcome
  return all;
}

void run(const Endpoint& endpoint, const Secret& secret, size_t count, double seconds) {
  auto begin = Clock::now();
  auto agents = join(endpoint, secret, count);
  fmt::print("joined {} {:.3f}\n", count, seconds_since(begin));
  std::fflush(stdout);
  begin = Clock::now();
  const std::string beat = Beat{}.write();
  size_t sent = 0;  // by all; each second's beats are spread over the second
  while (seconds_since(begin) < seconds) {
    const auto due = static_cast<size_t>(seconds_since(begin) * static_cast<double>(count));
    for (; sent < due; ++sent) {
      Channel& agent = *agents[sent % count];
      while (agent.try_receive()) {
      }
      queue_message(&agent, NodeMessage::kBeat, beat);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    fmt::print(stderr, "usage: agent_swarm HOST:PORT SECRET_FILE COUNT SECONDS COMMIT\n");
    return 2;
  }
  set_build_commit(argv[5]);  // the supervisor's
  try {
    run(parse_endpoint(argv[1]), Secret::from_file(argv[2]),
        static_cast<size_t>(std::atoll(argv[3])), std::atof(argv[4]));
  } catch (const Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return e.exit_code();
  }
  return 0;
}
