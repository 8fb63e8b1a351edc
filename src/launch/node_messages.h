// launch/node_messages.h: the messages between the supervisor and the agents of a run
// (docs/design/0018-nodes.md).
//
// Frames of an authenticated channel (net/channel.h). Reading is strict: a message that lacks a
// field, or has one out of its range, is a PeerError.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launch/job_status.h"
#include "net/channel.h"

namespace weft {

inline constexpr const char* kSupervisorService = "supervisor";
inline constexpr int kMaxNodes = 1 << 16, kMaxRanks = 1 << 20;

enum class NodeMessage : uint8_t {
  // from an agent
  kHello = 1,
  kBeat = 2,
  kLine = 3,
  kEnded = 4,
  kRefused = 5,
  kSignal = 6,
  kStopping = 7,
  kParked = 8,  // these and kPark, kResume: launch/park_messages.h
  kHung = 9,
  // from whoever has placed the nodes, in place of a hello; answered by kLeave
  kDrop = 10,
  // from the supervisor
  kWelcome = 32,
  kStart = 33,
  kKill = 34,
  kStop = 35,
  kAlive = 36,
  kLeave = 37,
  kPark = 38,
  kResume = 39,
  kForget = 40,  // the slots of the previous layout
};
FrameBounds node_message_bounds();
void queue_message(Channel* to, NodeMessage kind, std::string_view payload = "");

struct Hello {
  std::string host;
  int64_t pid = 0, cores = 1;
  bool is_first = false;   // the supervisor's own child
  std::string slots = "";  // where its slot service listens: another place each time it joins
  std::string id = "";     // of the process, random: the same each time it joins
  std::string write() const;
  static Hello read(std::string_view text);
};

struct Beat {
  int64_t generation = 0, step = 0;  // the last completed one; 0: none
  bool has_saved = false, is_finishing = false;
  bool is_opened = false;              // the run directory is this run's
  int64_t shared_bytes = 0;            // memory of the node besides its ranks' own
  bool has_stepped = false;            // in this generation
  int64_t segment_bytes = 0;           // of shared_bytes: arenas and slots, which go with the ranks
  std::vector<RankStatus> ranks = {};  // of the node; at_ms of their signs is an age
  std::string write() const;
  static Beat read(std::string_view text);
};

// The agent whose node is lost, by what its hello had.
struct Drop {
  std::string host;
  int64_t pid = 0;
  std::string write() const;
  static Drop read(std::string_view text);
};

// A line that a rank printed; its bytes may be anything.
struct OutputLine {
  int64_t rank = 0;
  bool is_error = false;
  std::string text;
  std::string write() const;
  static OutputLine read(std::string_view text);
};

struct RankEnd {
  int64_t generation = 0, rank = 0;
  int exit_code = 0, signal = 0;  // signal: that killed it; 0: none
  bool was_killed = false;        // by its agent
  std::string words;              // its error, or its last line
  bool has_waited = false;  // ranks of its node ended since one has waited for another in vain
  std::string write() const;
  static RankEnd read(std::string_view text);
};

// A start that is not possible here. Also what `leave` says.
struct Verdict {
  int64_t generation = 0;
  int exit_code = 0;
  std::string words;
  std::string write() const;
  static Verdict read(std::string_view text);
};

struct NodeStart {
  int64_t generation = 0, node = 0, num_nodes = 1, ranks_per_node = 1;
  int64_t threads = 0, deadline_ms = 0;
  std::vector<std::string> argv;
  std::map<std::string, std::string> env;    // added to the agent's
  std::string directory;                     // to work in
  std::map<std::string, std::string> files;  // path: hash of its content
  std::string marker, marker_text;           // a file of the run directory; "": no shared storage
  std::string store;
  bool has_saved = false;      // an earlier generation did
  bool has_snapshots = false;  // ranks have slots, and outlive the death of others
  // It continues from this step (-1: from storage), which copies of the lost node's slots hold at
  // that address; last_step: how far the run was.
  int64_t step = -1, last_step = 0;
  std::string copies_at = "";
  bool is_from_previous = false;  // or the slots of the previous layout, wherever they are
  std::string write() const;
  static NodeStart read(std::string_view text);
};

// kKill: the generation; kStop, kSignal: the signal; kStopping: 1 where there was anything to
// save, else 0; kWelcome, kAlive, kForget: nothing.
std::string write_number(int64_t number);
int64_t read_number(std::string_view text);

}  // namespace weft
