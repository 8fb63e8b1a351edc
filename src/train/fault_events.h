// train/fault_events.h: failures and deaths, recorded in a run directory by who survives them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
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

// The loss of a node, by its ranks, when it is found. Rank 0 may still write, unless it was there.
void report_node_loss(const std::filesystem::path& dir, int first_rank, int num_ranks,
                      const std::string& text);

// The death of a rank that the run survives; no rank writes meanwhile.
void report_death(const std::filesystem::path& dir, const char* event, int rank,
                  const std::string& text, const std::vector<HungRank>& hung = {});

}  // namespace weft
