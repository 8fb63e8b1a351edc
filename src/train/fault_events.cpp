// train/fault_events.cpp: lines of events.jsonl and of a rank's log.
#include "train/fault_events.h"

#include <algorithm>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/path.h"
#include "track/run_files.h"
#include "train/run_lock.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

void write_hangs(const fs::path& events, const std::vector<HungRank>& hung) {
  for (const HungRank& h : hung)
    EventWriter(events, h.rank)
        .write("rank_hung", {{"last", Json(h.last)}, {"stack", Json(h.stack)}});
}

void warn(const std::string& text, const Error& why) {
  log_warning("\"{}\" could not be recorded: {}", text, why.what());
}

// fields: a message first.
void write_survived(const fs::path& dir, const char* event, int rank, const Json::Object& fields,
                    const std::vector<HungRank>& hung = {}) {
  try {
    const fs::path events = dir / "events.jsonl";
    if (path_kind(events) == PathKind::kNothing) return;  // before the run began
    cut_torn_line(events);
    write_hangs(events, hung);
    EventWriter(events, std::max(rank, 0)).write(event, fields);
  } catch (const Error& e) {
    warn(fields.front().second.as_string(), e);
  }
}

}  // namespace

std::optional<fs::file_time_type> last_event_time(const fs::path& dir) {
  std::error_code fault;
  const auto time = fs::last_write_time(dir / "events.jsonl", fault);
  return fault ? std::nullopt : std::optional(time);
}

HungRank report_hang(const fs::path& dir, int rank, const std::string& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  const HungRank hung{rank, text.substr(0, end), text.substr(std::min(end + 1, text.size()))};
  const fs::path log = dir / "log" / fmt::format("rank-{:05}.log", rank);
  log_warning("rank {} hangs and is killed ({}); its stack is in {}", rank, hung.last,
              log.string());
  try {
    FileWriter(log, FileWriter::Mode::kAppend)
        .write(fmt::format("the rank hangs ({}); its stack:\n{}", hung.last, hung.stack));
  } catch (const Error& e) {
    log_warning("{}\n{}", e.what(), hung.stack);
  }
  return hung;
}

void report_failure(const fs::path& dir, const RunFailure& failure,
                    const std::vector<HungRank>& hung) {
  try {
    const RunLock lock(dir);
    cut_torn_line(dir / "events.jsonl");
    write_hangs(dir / "events.jsonl", hung);
    Json::Object fields = {{"message", Json(failure.text)}};
    if (failure.rank < 0) fields.emplace_back("ranks", Json(Json::Array{}));
    EventWriter(dir / "events.jsonl", std::max(failure.rank, 0)).write(failure.event, fields);
  } catch (const Error& e) {
    warn(failure.text, e);
  }
}

void report_death(const fs::path& dir, const RankDeath& death) {
  std::vector<int> dead = death.others;
  if (death.rank >= 0) dead.push_back(death.rank);
  std::sort(dead.begin(), dead.end());
  Json::Array ranks;
  for (const int r : dead) ranks.emplace_back(int64_t{r});
  write_survived(dir, "rank_died", death.rank,
                 {{"message", Json(death.text)}, {"ranks", Json(ranks)}}, death.hung);
}

void report_recovery_failure(const fs::path& dir, int rank, const std::string& text) {
  write_survived(dir, "recovery_failed", rank, {{"message", Json(text)}});
}

void report_node_loss(const fs::path& dir, int first_rank, int num_ranks, const std::string& text) {
  Json::Array ranks;
  for (int r = 0; r < num_ranks; ++r) ranks.emplace_back(int64_t{first_rank} + r);
  write_survived(dir, "node_lost", first_rank, {{"message", Json(text)}, {"ranks", Json(ranks)}});
}

}  // namespace weft
