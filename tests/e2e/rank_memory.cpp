// tests/e2e/rank_memory.cpp: /proc of the ranks.
#include "tests/e2e/rank_memory.h"

#include <algorithm>
#include <sstream>
#include <string>

#include "net/snapshot_slots.h"
#include "tests/program.h"

namespace weft::testing {
namespace {

std::string proc(pid_t pid, const std::string& file) {
  return slurp("/proc/" + std::to_string(pid) + "/" + file);
}

// -1: no rank, or gone.
int rank_of(pid_t pid) {
  std::istringstream environment(proc(pid, "environ"));
  const std::string mark = "WEFT_RANK=";
  for (std::string entry; std::getline(environment, entry, '\0');) {
    if (entry.starts_with(mark)) return std::stoi(entry.substr(mark.size()));
  }
  return -1;
}

int64_t status_bytes(pid_t pid, const std::string& key) {
  std::istringstream status(proc(pid, "status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::stol(line.substr(key.size())) * 1024;
  }
  return 0;
}

int64_t anonymous_bytes(pid_t pid) { return status_bytes(pid, "RssAnon:"); }

void keep_largest(const RankMemory& now, RankMemory* peak) {
  if (now.resident() > peak->resident()) *peak = now;
}

// "7f.. - 7f.. rw-s OFFSET dev inode /memfd:weft (deleted)", then lines of which one is Rss.
// `first` and `count`: which of the stretches of 1 << `bits` bytes of that memfd are the rank's.
int64_t mapped_bytes(pid_t pid, const std::string& memfd, int bits, int64_t first, int64_t count) {
  std::istringstream smaps(proc(pid, "smaps"));
  int64_t bytes = 0;
  bool is_own = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.find("-") != std::string::npos && line.find(":") > line.find(" ")) {
      std::istringstream words(line);
      std::string range, rights, offset;
      words >> range >> rights >> offset;
      const int64_t stretch = std::stoll(offset, nullptr, 16) >> bits;
      is_own = line.find("/memfd:" + memfd + " ") != std::string::npos && stretch >= first &&
               stretch < first + count;
    } else if (is_own && line.starts_with("Rss:")) {
      bytes += std::stol(line.substr(4)) * 1024;
    }
  }
  return bytes;
}

int64_t own_arena_bytes(pid_t pid, int rank) { return mapped_bytes(pid, "weft", 44, rank + 1, 1); }
int64_t own_slot_bytes(pid_t pid, int rank) {
  constexpr int kSlots = SnapshotSlots::kPerRank;
  return mapped_bytes(pid, "weft-snapshots", 43, kSlots * rank + 1, kSlots);
}

}  // namespace

void watch_ranks(pid_t supervisor, std::map<int, RankMemory>* peaks) {
  const std::string id = std::to_string(supervisor);
  std::istringstream children(proc(supervisor, "task/" + id + "/children"));
  for (pid_t pid = 0; children >> pid;) {
    const int rank = rank_of(pid);
    if (rank < 0) continue;
    RankMemory& peak = (*peaks)[rank];
    peak.anonymous = std::max(peak.anonymous, anonymous_bytes(pid));
    peak.arena = std::max(peak.arena, own_arena_bytes(pid, rank));
    peak.files = std::max(peak.files, status_bytes(pid, "RssFile:"));
    peak.slots = std::max(peak.slots, own_slot_bytes(pid, rank));
  }
}

void watch_job(pid_t job, JobMemory* peak) {
  const std::string id = std::to_string(job);
  RankMemory own{anonymous_bytes(job), 0, status_bytes(job, "RssFile:"), 0};
  int64_t files = own.files, sum = own.anonymous;
  bool has_ranks = false;
  std::istringstream children(proc(job, "task/" + id + "/children"));
  for (pid_t pid = 0; children >> pid;) {
    const int rank = rank_of(pid);
    if (rank < 0) continue;
    has_ranks = true;
    const RankMemory now{anonymous_bytes(pid), own_arena_bytes(pid, rank),
                         status_bytes(pid, "RssFile:"), own_slot_bytes(pid, rank)};
    keep_largest(now, &peak->ranks[rank]);
    files = std::max(files, now.files);
    sum += now.total();
  }
  if (!has_ranks && (peak->ranks.empty() || peak->ranks.size() == 1))
    keep_largest(own, &peak->ranks[0]);
  peak->total = std::max(peak->total, sum + files);
}

}  // namespace weft::testing
