// tests/launch/rank_program.cpp: a small program that is supervisor and rank, as weft train is.
//
// rank_program NUM_RANKS WHAT [ARG]: as supervisor it starts itself; as rank it does WHAT. With
// NODES and SECRET_FILE in the environment it is the supervisor of that many nodes; ELASTIC ("31"):
// in which numbers of them it may continue; SHORT ("2"): those for which memory does not suffice;
// SNAPSHOTS: ranks have slots, except in layouts of BARE ("1") nodes; GRACE_MS and UNKILLABLE_MS:
// of JobOptions; PARK_MS: likewise; NODE_NAMES ("n[1-2]"): where an engine has started agents;
// JOIN_MS: how long it waits for nodes, REJOIN_MS: after the first start; BUILD: the commit that it
// claims; FULL_DISK: no rank can save; SILENCE_MS: after which an agent stops its ranks, and after
// twice as much its node is lost. rank_program agent --join HOST:PORT --secret-file FILE: the agent
// of a node.
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/version.h"
#include "comm/nodes/nodes.h"
#include "comm/shm/shm.h"
#include "launch/agent.h"
#include "launch/job.h"
#include "launch/lease_watch.h"
#include "launch/node_job.h"
#include "launch/rank_context.h"
#include "launch/slurm_node_list.h"
#include "net/slot_client.h"
#include "net/store.h"
#include "tests/launch/surviving_rank.h"

namespace weft {
namespace {

void say(const std::string& text) {
  std::fputs((text + "\n").c_str(), stdout);
  std::fflush(stdout);
}

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

// Runs collectives until a rank is asked to stop; all ranks learn of the request in the same round.
// Rank 0 sleeps before each round and the other ranks wait in the collective, so waiting tests need
// little processor time. save_ms: how long a rank takes to save.
int train_for_ever(const RankContext& me, Comm& comm, float* data, int64_t count, int save_ms) {
  ShmWorld& world = *me.world;
  if (!world.begin_saving()) return 1;
  say(fmt::format("rank {} trains, {} in all, {} slots", comm.rank(), comm.size(),
                  me.slots ? "with" : "without"));
  for (int64_t step = 1;; ++step) {
    if (comm.rank() == 0) sleep_ms(20);
    comm.all_reduce(data, count, Dtype::kF32);
    for (int64_t i = 0; i < count; ++i) data[i] *= 0.5f;
    int64_t stop = world.stop_word();
    comm.all_reduce(&stop, 1, Dtype::kI64, Reduce::kMax);
    world.note_step(step);
    if (stop == 0) continue;
    sleep_ms(save_ms);
    if (std::getenv("FULL_DISK") != nullptr) throw RunError("the disk is full", "make room");
    say(fmt::format("rank {} saved", comm.rank()));
    return 128 + static_cast<int>(stop);
  }
}

constexpr int64_t kSlotBytes = 64, kSnapshotStep = 7, kSlotMs = 10'000;

// In this rank's slot, with its copy on the next node.
void take_snapshot(const RankContext& me) {
  SnapshotSlots& slots = *me.slots;
  const int rank = me.local_rank(), node = me.rank / slots.num_ranks(),
            num_nodes = me.size / slots.num_ranks();
  const std::string layout = "layout", text = fmt::format("rank {} of {}", me.rank, me.size);
  slots.reserve(rank, kSlotBytes, layout);
  std::byte* data = slots.begin(rank, 0, kSnapshotStep, 0);
  std::memset(data, me.rank, kSlotBytes);
  slots.finish(rank, 0, text);
  if (num_nodes == 1) return;
  const Secret secret = Secret::from_file(me.node->secret_file);
  const auto partner = StoreClient(me.node->store, kSlotMs, &secret)
                           .wait_for(slots_key((node + 1) % num_nodes), kSlotMs);
  SlotClient(partner.value(), secret, kSlotMs)
      .put({node, rank, 0, kSnapshotStep, 0, static_cast<int64_t>(layout.size()),
            static_cast<int64_t>(text.size()), kSlotBytes},
           layout, text, data);
}

// All slots of the previous layout, wherever they are; then they are not needed any more.
void load_previous(const RankContext& me, Comm& comm) {
  const Secret secret = Secret::from_file(me.node->secret_file);
  const auto where =
      StoreClient(me.node->store, kSlotMs, &secret).wait_for(kPreviousSlotsKey, kSlotMs);
  std::istringstream lines(where.value());
  std::string endpoint, found;
  for (int64_t node = 0; std::getline(lines, endpoint); ++node) {
    SlotClient client(endpoint, secret, kSlotMs, true);
    for (int r = 0; r < me.slots->num_ranks(); ++r)
      found += client.text(node, r, me.world->start_step()).value_or("nothing") + "; ";
  }
  comm.barrier();
  me.world->note_loaded();
  while (me.world->has_previous_slots()) sleep_ms(1);
  say(fmt::format("rank {} has step {} of {}", me.rank, me.world->start_step(), found));
}

int count_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  return CPU_COUNT(&set);
}

int run_rank(const RankContext& me, const std::string& what, int arg) {
  const LeaseWatch lease(me);
  if (what == "survive") {  // ARG: testing::survive's late_ms and slow_ms
    auto* sums = static_cast<float*>(me.world->take_arena(me.local_rank(), 64));
    return testing::survive(me, arg, arg,
                            [&](Comm& comm) { return train_for_ever(me, comm, sums, 16, 0); });
  }
  const auto comm = me.node ? make_nodes_comm(me.world, me.local_rank(), *me.node)
                            : make_shm_comm(me.world, me.rank);
  const bool is_chosen = me.rank == arg;
  const int64_t count = 1 << 18;
  auto* data = static_cast<float*>(me.world->take_arena(me.local_rank(), count * 4));
  if (what == "report") {
    int64_t sum = 1;
    comm->all_reduce(&sum, 1, Dtype::kI64);
    say(fmt::format("rank {} of {} sum {} threads {} cores {}", me.rank, me.size, sum, me.threads,
                    count_cores()));
    std::fputs(fmt::format("whole line\nno end of rank {}", me.rank).c_str(), stderr);
    return 0;
  }
  if (what == "user_error" && is_chosen) throw UserError("the run file is wrong");
  if (what == "bug" && is_chosen) throw BugError("a promise is broken");
  if (what == "code" && is_chosen) return 3;
  if (what == "crash" && is_chosen) ::raise(SIGABRT);
  if (what == "early_stop") {
    say(fmt::format("rank {} has nothing to save", me.rank));
    for (;;) ::pause();
  }
  if ((what == "hang" || what == "ignore_stop") && is_chosen) {
    say("hangs");
    for (;;) sleep_ms(1000);
  }
  if (what == "save_long") {  // while another one's GPU fails
    if (!is_chosen) {
      me.world->heartbeat(me.local_rank()).note(Phase::kSaving, 1);
      for (;;) sleep_ms(1000);
    }
    sleep_ms(600);
    me.world->abort("a GPU failed");  // as the trainer does for every PeerError
    throw PeerError("a GPU failed");
  }
  if (what == "two_hang" && !is_chosen) {
    me.world->heartbeat(me.local_rank()).note(Phase::kPasses, 1);
    say("hangs");
    for (;;) sleep_ms(1000);
  }
  if (what == "other_call" && is_chosen) comm->barrier();
  if (what == "leave" && is_chosen) return 0;
  if (what == "last_one") {
    comm->barrier();
    if (!is_chosen) return 0;
    sleep_ms(500);  // the others were seen to end
    say(fmt::format("rank {} is alone and done", me.rank));
    return 0;
  }
  if (what == "finish") {
    if (!me.world->begin_saving()) return 1;
    say(fmt::format("rank {} finishes", me.rank));
    while (me.world->stop_word() == 0) sleep_ms(1);
    return 0;
  }
  if (what == "end" || what == "end_dies" || what == "end_parks")
    return testing::finish_alone(me, *comm, arg, what == "end_dies", what == "end_parks");
  if (what == "deaf") {  // ignores the abort, but ends by itself if nobody ends the job
    sleep_ms(is_chosen ? 50 : 60'000);
    return is_chosen ? 1 : 0;
  }
  if (what == "snapshot") {
    if (me.world->has_previous_slots()) load_previous(me, *comm);
    if (me.slots) take_snapshot(me);
    comm->barrier();
  }
  if (me.rank == 0) me.world->note_opened();
  return train_for_ever(me, *comm, data, count, what == "slow_save" ? 1000 : 0);
}

std::string text_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr ? text : "";
}

int64_t number_of(const char* variable, int64_t otherwise) {
  const std::string text = text_of(variable);
  return text.empty() ? otherwise : std::stoll(text);
}

int run_as_agent(const std::vector<std::string>& words) {
  require(words.size() == 6, "usage: {} agent --join HOST:PORT --secret-file FILE", words[0]);
  AgentOptions options;
  options.join = words[3];
  options.secret_file = words[5];
  options.is_first = std::getenv(kFirstAgentVariable) != nullptr;
  options.join_ms = 3000;
  options.unkillable_ms = number_of("UNKILLABLE_MS", options.unkillable_ms);
  options.park_ms = number_of("PARK_MS", options.park_ms);
  options.silence_ms = number_of("SILENCE_MS", options.silence_ms);
  options.lease_ms = number_of("SILENCE_MS", options.lease_ms * 2 / 3) * 3 / 2;
  return run_agent(options);
}

int run_nodes(const JobOptions& job, int num_nodes, const EventSink& sink) {
  NodeJobOptions options;
  options.job = job;
  options.num_nodes = num_nodes;
  options.secret_file = std::getenv("SECRET_FILE");
  options.agent_argv = {job.argv[0], "agent"};
  if (const std::string names = text_of("NODE_NAMES"); !names.empty())
    options.node_names = expand_node_list(names);
  options.directory = "/";
  if (const char* marker = std::getenv("MARKER")) options.marker = marker;
  options.marker_text = "what the supervisor has written";
  for (const char digit : text_of("ELASTIC")) {
    const int count = digit - '0';
    options.layouts.push_back({count, int64_t{count} * job.num_ranks});
  }
  options.fewest_nodes = static_cast<int>(number_of("FEWEST", options.fewest_nodes));
  options.fits = [](const NodeLayout& layout, int64_t) {
    sleep_ms(static_cast<int>(number_of("CHECK_MS", 0)));
    const bool is_short =
        text_of("SHORT").find(std::to_string(layout.num_nodes)) != std::string::npos;
    LayoutFit fit;
    if (is_short) fit.shortage = "2 GiB are missing";
    if (text_of("BARE").find(std::to_string(layout.num_nodes)) != std::string::npos) {
      fit.has_snapshots = false;
      fit.warning = "no memory for copies";
    }
    return fit;
  };
  options.join_ms = number_of("JOIN_MS", 20'000);
  options.lost_ms = 2 * number_of("SILENCE_MS", options.lost_ms / 2);
  return run_node_job(options, [&](const char* event, int rank, const std::string& text) {
    if (std::string(event) == "started") options.join_ms = number_of("REJOIN_MS", options.join_ms);
    sink(event, rank, text);
  });
}

int run(int argc, char** argv) {
  const std::vector<std::string> words(argv, argv + argc);
  set_build_commit(text_of("BUILD"));
  if (argc >= 2 && words[1] == "agent") return run_as_agent(words);
  require(argc >= 3, "usage: {} NUM_RANKS WHAT [ARG]", words[0]);
  const int arg = argc > 3 ? std::stoi(words[3]) : -1;
  if (const auto me = RankContext::from_environment()) return run_rank(*me, words[2], arg);
  JobOptions options;
  options.num_ranks = std::stoi(words[1]);
  if (words[2] == "report") options.argv = words;  // else taken from /proc
  const bool hangs = words[2] == "hang" || words[2] == "two_hang" || words[2] == "save_long";
  options.deadline_ms = hangs ? 500 : 30'000;
  options.watches_hangs = hangs && words[2] != "hang";
  // Time for well-behaved ranks to report what ended them, even on a busy machine.
  if (words[2] != "deaf" && !hangs) options.grace_ms = 10'000;
  options.grace_ms = number_of("GRACE_MS", options.grace_ms);
  options.unkillable_ms = number_of("UNKILLABLE_MS", options.unkillable_ms);
  if (words[2] == "no_program") options.program = "/nowhere/weft";
  const EventSink sink = [](const char* event, int rank, const std::string& text) {
    say(fmt::format("event {} {} {}", event, rank, text));
  };
  options.on_status = [last = std::string(), was_opened = false](const JobStatus& status) mutable {
    if (status.is_opened && !std::exchange(was_opened, true)) say("the run directory is open");
    if (status.cause != last) say("cause: " + status.cause);
    last = status.cause;
  };
  const char* nodes = std::getenv("NODES");
  if (nodes == nullptr) return run_local_job(options, sink);
  options.argv = words;
  options.max_restarts = 1;
  options.has_snapshots = !text_of("SNAPSHOTS").empty();
  return run_nodes(options, std::stoi(nodes), sink);
}

}  // namespace
}  // namespace weft

// For the address sanitizer: its leak check takes seconds per process, and these are many.
// NOLINTNEXTLINE(readability-identifier-naming): the sanitizer's name
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }

int main(int argc, char** argv) {
  try {
    return weft::run(argc, argv);
  } catch (const weft::Error& e) {
    const std::string hint = e.hint().empty() ? "" : "\n  hint: " + e.hint();
    weft::note_rank_failure(e.what() + hint);
    std::fprintf(stderr, "error: %s\n", e.what());
    return e.exit_code();
  }
}
