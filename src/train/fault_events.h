// train/fault_events.h: failures and deaths, recorded in a run directory by who survives them.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft {

// When the last event was written; none: there are no events, or unknown.
std::optional<std::filesystem::file_time_type> last_event_time(const std::filesystem::path& dir);

// A rank that was killed since it hung.
struct HungRank {
  int rank;
  std::string last, stack;  // what it did last; where its threads were
};

// Into the rank's log. text: what it did last on the first line, then its stack.
HungRank report_hang(const std::filesystem::path& dir, int rank, const std::string& text);

// Why a run has ended. Nobody else uses the directory, so that its lock is free unless another
// process has begun to train there.
struct RunFailure {
  const char* event;  // "rank failed", or "failed"
  int rank;           // -1: none
  std::string text;
};
void report_failure(const std::filesystem::path& dir, const RunFailure& failure,
                    const std::vector<HungRank>& hung = {});

// Of a start that failed before it opened the directory: whether its events may be written, since
// this run is there (which has this resolved run file, and may convert states), or nothing but what
// such a start leaves. Makes events.jsonl.
bool begin_events(const std::filesystem::path& dir, const std::string& resolved,
                  bool converts = false);

// Before a start has opened the directory, its events.jsonl is missing or an earlier start's: what
// happens until then is written later, with its own time, while rank 0 may write too.
class EarlyEvents {
 public:
  using Write = std::function<void(const std::string& time)>;  // time "": now
  void record(Write write);
  void note_opened();

 private:
  bool is_opened_ = false;
  std::vector<std::pair<Write, std::string>> kept_;
};

// The loss of a node, by its ranks, when it is found: 0 where they could not be started. Rank 0 may
// still write, unless it was there.
void report_node_loss(const std::filesystem::path& dir, int first_rank, int num_ranks,
                      const std::string& text, const std::string& time = "");

// Records that a signal ended the run immediately; the process may still be writing.
void report_cut_off(const std::filesystem::path& dir, const std::string& text);

// The death of a rank that the run survives; no rank writes meanwhile, unless a time is given.
struct RankDeath {
  int rank;  // -1: nobody has died, though ranks have waited for too long
  std::string text;
  std::vector<int> others = {};  // that died with it
  std::vector<HungRank> hung = {};
};
void report_death(const std::filesystem::path& dir, const RankDeath& death,
                  const std::string& time = "");

// The snapshots in memory cannot be read. rank: -1: none in particular.
void report_recovery_failure(const std::filesystem::path& dir, int rank, const std::string& text,
                             const std::string& time = "");

}  // namespace weft
