// launch/job.h: a job of ranks on this machine, started, watched and ended by one supervisor.
//
// Ranks are this program again, with the same arguments and some variables (RankContext). Rank 0
// keeps the terminal; the others' output comes through pipes, with "[rank 3] " before each line.
//
// The first rank that fails is the cause of the job's end. It is reported, the other ranks'
// collectives are aborted with it as the reason, and ranks still running after grace_ms are killed.
// A rank that only lost its peers (exit 75) is the cause only where no other rank failed by itself.
//
// With max_restarts, a rank that a signal killed or that lost its peers does not end the job
// (docs/design/0015-survive.md): the others park, it is replaced, and all continue from the newest
// step that the snapshots of all ranks hold; where there is none, all ranks are started again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/job_status.h"
#include "net/deadline.h"
#include "net/node_place.h"

namespace weft {

struct JobOptions {
  int num_ranks = 1;
  std::vector<std::string> argv;  // of the ranks; empty: this process's own
  std::string program = "/proc/self/exe";
  std::string input = "/dev/null";    // a file: each rank's standard input, from its beginning
  int threads = 0;                    // of a rank; 0: its share of the cores
  int64_t deadline_ms = kDeadlineMs;  // of a collective
  int64_t grace_ms = 300;             // for the others, after the first failure
  int64_t max_restarts = 0;           // -1: without bound
  int64_t restart_reset_steps = 0;    // after that many steps earlier ones are forgotten; 0: never
  bool has_snapshots = false;         // ranks get slots for them (SnapshotSlots)
  int64_t park_ms = 10'000;           // for a rank to park; then it is replaced too
  int64_t hung_park_ms = 1'000;       // where others have waited for it until their deadline
  int64_t new_park_ms = 300;          // for one that starts or recovers, on several nodes
  int64_t unkillable_ms = 30'000;     // after SIGKILL: the system cannot end it
  bool watches_hangs = false;         // ranks note their phases: those that hang are found
  // A rank's last collective in words (Heartbeat::note_call); empty: not known.
  std::function<std::string(uint64_t call)> describe_call = nullptr;
  // Called about once per second, and where the state changes; null: nobody asks.
  std::function<void(const JobStatus&)> on_status = nullptr;
  // From what ranks continue that are all started again, in words.
  std::function<std::string()> describe_saved = nullptr;
  std::string saved_words() const {
    return describe_saved ? describe_saved() : "the newest checkpoint";
  }
  // What the first signal is acknowledged with: before there is something to save, and after.
  const char* early_words = ": stopped before the first step, with nothing to save";
  const char* noted_words = ": finishing the current step, then saving";

  std::map<std::string, std::string> env = {};  // added to the ranks' environment
  // These are the ranks of one node of several. forward: where lines of ranks above 0 go; null:
  // this process's output.
  std::optional<NodePlace> node = std::nullopt;
  std::function<void(int rank, bool is_error, const std::string& line)> forward = nullptr;
};

// event: started, stopping (a signal arrived), failed (the cause), ended, killed; died (a rank
// whose death does not end the job; no rank touches any file when this is called; before it
// died_too for each one that died or hung together with it), hung (a rank
// that is about to be killed: what it did last on the first line, then its stack), recovery_failed
// (the snapshots could not be read: storage follows), continued (from which step),
// cut_off (a second signal has ended the job, unsaved).
using EventSink = std::function<void(const char* event, int rank, const std::string& text)>;

inline constexpr const char* kCutOffWords =
    "a second signal ended the run at once: the steps since the newest checkpoint are lost";

// The exit code: 0; the failing rank's own; 75 where a signal killed it or it lost its peers; 128 +
// N where all stopped on signal N (base/stop.h) and have saved, or had nothing to save. No rank is
// left when this returns or throws. The first signal is acknowledged on standard error, and ranks
// learn of it only through the world (ShmWorld::request_stop); they ignore signals themselves. A
// second SIGINT or SIGTERM kills the ranks, and the exit code is 1. A rank that SIGKILL does not
// end within unkillable_ms ends the job with 75, and may be left.
[[nodiscard]] int run_local_job(const JobOptions& options, const EventSink& sink);

}  // namespace weft
