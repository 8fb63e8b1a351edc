// launch/park_messages.h: what supervisor and agents say when a rank has died and the others wait
// (docs/design/0021-memory-of-nodes.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// To all agents: a rank of this generation is lost.
struct Park {
  int64_t generation = 0;
  std::string reason;
  bool is_hang = false;  // nobody has died: who does not park soon is the one that hangs
  bool is_end = false;   // the generation ends: who waits must not wait any longer
  int64_t step = -1;     // with is_end: slots that hold it are kept for the next layout; -1: none
  std::string write() const;
  static Park read(std::string_view text);
};

// From an agent: each of its ranks has parked or ended.
struct Parked {
  int64_t generation = 0;
  std::string reason;          // as its ranks have it
  std::vector<int64_t> steps;  // that are whole in the slots of all its ranks
  std::vector<int64_t> kept;   // and in the copies of those of the node before it
  std::string fault = "";      // why its ranks cannot continue from slots; "": they can
  std::string write() const;
  static Parked read(std::string_view text);
};

// From an agent: a rank that it is about to kill; what it did last on the first line, its stack.
struct Hung {
  int64_t generation = 0, rank = 0;
  std::string text;
  bool is_first = false;  // found by itself, and not since others have lost a rank and this one not
  std::string write() const;
  static Hung read(std::string_view text);
};

// To all agents: go on, as this generation, from this step.
struct Resume {
  int64_t generation = 0, step = 0;
  std::string store;
  std::string write() const;
  static Resume read(std::string_view text);
};

}  // namespace weft
