// benchmarks/rendezvous_bench.cpp: what a node costs the supervisor.
//
//   rendezvous_bench [CLIENTS...]        default: 200
//
// Clients are threads of another process. Store: each connects, sets its key and waits for a key
// that is set when all are there. Channel: each joins a supervisor's loop, is welcomed when all are
// there, and sends heartbeats. The CPU time of the two processes is reported per client.
#include <fmt/core.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "net/channel.h"
#include "net/channel_acceptor.h"
#include "net/store.h"

namespace {

using namespace weft;
using Clock = std::chrono::steady_clock;

constexpr int64_t kDeadlineMs = 120'000;
constexpr int kHeartbeats = 50;
const Identity kSelf = {"supervisor"};
enum : uint8_t { kJoin = 1, kWelcome, kBeat, kBye };
const FrameBounds kBounds = {{kJoin, 4096}, {kWelcome, 4096}, {kBeat, 256}, {kBye, 0}};

double cpu_ms(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  const auto ms = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_usec) * 1e-3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

// A process with `n` threads, each of which runs `client(i)`.
pid_t start_clients(int n, const std::function<void(int)>& client) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) threads.emplace_back([&client, i] { client(i); });
  for (std::thread& thread : threads) thread.join();
  ::_exit(0);
}

struct Meter {
  double own = cpu_ms(RUSAGE_SELF), clients = cpu_ms(RUSAGE_CHILDREN);
  Clock::time_point start = Clock::now();

  // The clients' time is known once they have ended.
  void report(const char* what, int n, double per) const {
    const double wall = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    const double theirs = cpu_ms(RUSAGE_CHILDREN) - clients;
    fmt::print("{:<28} {:>6} {:>10.1f} {:>14.1f} {:>14}\n", what, n, wall,
               (cpu_ms(RUSAGE_SELF) - own) * 1e3 / per,
               theirs > 0 ? fmt::format("{:.1f}", theirs * 1e3 / per) : "-");
  }
};

void bench_store(int n, const Secret* secret) {
  const Meter meter;
  // The server's thread would not survive fork: clients first, the port through a pipe each.
  int ports[2];
  if (::pipe(ports) != 0) std::exit(1);
  const pid_t pid = start_clients(n, [&](int i) {
    char text[64] = {};
    if (::read(ports[0], text, sizeof text) != sizeof text) std::exit(1);
    StoreClient client(text, kDeadlineMs, secret);
    client.set(fmt::format("agent/{}", i), "10.0.0.1:4711");
    if (!client.wait_for("all", kDeadlineMs)) std::exit(1);
  });
  const StoreServer server("127.0.0.1", "0", secret);
  char text[64] = {};
  server.endpoint().copy(text, sizeof text - 1);
  for (int i = 0; i < n; ++i) {
    if (::write(ports[1], text, sizeof text) != sizeof text) std::exit(1);
  }
  StoreClient first(server.endpoint(), kDeadlineMs, secret);
  for (int i = 0; i < n; ++i) {
    if (!first.wait_for(fmt::format("agent/{}", i), kDeadlineMs)) std::exit(1);
  }
  first.set("all", "here");
  int status = 0;
  ::waitpid(pid, &status, 0);
  meter.report(secret != nullptr ? "store, secret" : "store, no secret", n, n);
  if (status != 0) std::exit(1);
}

void be_agent(const Endpoint& endpoint, const Secret& secret, int i) {
  Channel channel = Channel::connect(endpoint, secret, kSelf, kBounds, kDeadlineMs);
  channel.send(kJoin, fmt::format("{{\"node\": {}, \"ranks\": 8}}", i), kDeadlineMs);
  if (channel.receive(kDeadlineMs).kind != kWelcome) std::exit(1);
  for (int k = 0; k < kHeartbeats; ++k) {
    channel.send(kBeat, fmt::format("rank 0 step {} phase forward", k), kDeadlineMs);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  channel.send(kBye, "", kDeadlineMs);
}

// Reads all that an agent has sent; false after its farewell.
bool read_all(Channel* agent, uint8_t kind, int* count) {
  while (const auto frame = agent->try_receive()) {
    if (frame->kind == kind) --*count;
    if (frame->kind == kBye) return false;
  }
  return true;
}

// The supervisor's loop until `count` frames of that kind have come.
void serve(ChannelAcceptor* acceptor, std::vector<Channel>* agents, uint8_t kind, int count) {
  std::vector<pollfd> wanted;
  while (count > 0) {
    wanted.clear();
    for (const Channel& agent : *agents) wanted.push_back({agent.fd(), POLLIN, 0});
    acceptor->add_descriptors(&wanted);
    ::poll(wanted.data(), wanted.size(), 1000);
    size_t i = 0;
    std::erase_if(*agents, [&](Channel& agent) {
      return wanted[i++].revents != 0 && !read_all(&agent, kind, &count);
    });
    for (Channel& agent : acceptor->accept_known()) agents->push_back(std::move(agent));
  }
}

void bench_channel(int n) {
  const Secret secret = Secret::random();
  ChannelAcceptor acceptor("127.0.0.1", "0", secret, kSelf, kBounds);
  const Endpoint endpoint = parse_endpoint(acceptor.endpoint());
  const Meter join;
  const pid_t pid = start_clients(n, [&](int i) { be_agent(endpoint, secret, i); });
  std::vector<Channel> agents;
  serve(&acceptor, &agents, kJoin, n);
  for (Channel& agent : agents) agent.send(kWelcome, "rank 0 of 8", kDeadlineMs);
  join.report("channel, join and welcome", n, n);
  const Meter beats;
  serve(&acceptor, &agents, kBye, n);
  beats.report("channel, per heartbeat", n, static_cast<double>(n) * kHeartbeats);
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (status != 0) std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  std::vector<int> counts;
  for (int i = 1; i < argc; ++i) counts.push_back(std::atoi(argv[i]));
  if (counts.empty()) counts = {200};
  fmt::print("{:<28} {:>6} {:>10} {:>14} {:>14}\n", "", "clients", "wall ms", "server us each",
             "client us each");
  for (const int n : counts) {
    bench_store(n, nullptr);
    const Secret secret = Secret::random();
    bench_store(n, &secret);
    bench_channel(n);
  }
  const std::string text(1 << 20, 'x');
  const double before = cpu_ms(RUSAGE_SELF);
  for (int i = 0; i < 32; ++i) static_cast<void>(sha256(text));
  const double s = (cpu_ms(RUSAGE_SELF) - before) / 1e3;
  fmt::print("sha256: {:.0f} MB/s\n", 32 * 1.048576 / s);
}
