// train/fault_events.cpp: lines of events.jsonl and of a rank's log.
#include "train/fault_events.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/path.h"
#include "config/run_changes.h"
#include "track/run_files.h"
#include "train/mirror.h"
#include "train/run_lock.h"
#include "train/stored_run.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

void write_hangs(const fs::path& events, const std::vector<HungRank>& hung,
                 const std::string& time = "") {
  for (const HungRank& h : hung)
    EventWriter(events, h.rank)
        .write("rank_hung", {{"last", Json(h.last)}, {"stack", Json(h.stack)}}, time);
}

void warn(const std::string& text, const Error& why) {
  log_warning("\"{}\" could not be recorded: {}", text, why.what());
}

// Who else may write: lines are appended by one write each, so that two writers do not mix theirs;
// but what looks torn may then be a line that is being written.
enum class Others { kNone, kRankZero };

// fields: a message first.
void write_survived(const fs::path& dir, Others others, const char* event, int rank,
                    const Json::Object& fields, const std::string& time,
                    const std::vector<HungRank>& hung = {}) {
  try {
    const fs::path events = dir / "events.jsonl";
    if (path_kind(events) == PathKind::kNothing) return;  // before the run began
    if (others == Others::kNone) cut_torn_line(events);
    write_hangs(events, hung, time);
    EventWriter(events, std::max(rank, 0)).write(event, fields, time);
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

void report_cut_off(const fs::path& dir, const std::string& text) {
  write_survived(dir, Others::kRankZero, "failed", -1,
                 {{"message", Json(text)}, {"ranks", Json(Json::Array{})}}, "");
}

bool begin_events(const fs::path& dir, const std::string& resolved, bool converts) {
  try {
    const std::vector<std::string> names = folder_names(dir);
    const bool is_new = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      return name.starts_with('.') || name == kSecretFile ||
             (name == "events.jsonl" && has_events(dir));
    });
    const bool is_ours =
        find_stored_run(dir) == StoredRun::kWhole &&
        compare_runs(read_stored_run(dir), resolved, "the stored run.yaml", converts)
            .refused.empty();
    if (!is_new && !is_ours) return false;
    FileWriter(dir / "events.jsonl", FileWriter::Mode::kAppend).write("");
    return true;
  } catch (const Error& e) {
    log_warning("no events are recorded: {}", e.what());
    return false;
  }
}

void report_death(const fs::path& dir, const RankDeath& death, const std::string& time) {
  std::vector<int> dead = death.others;
  if (death.rank >= 0) dead.push_back(death.rank);
  std::sort(dead.begin(), dead.end());
  Json::Array ranks;
  for (const int r : dead) ranks.emplace_back(int64_t{r});
  write_survived(dir, time.empty() ? Others::kNone : Others::kRankZero, "rank_died", death.rank,
                 {{"message", Json(death.text)}, {"ranks", Json(ranks)}}, time, death.hung);
}

void report_recovery_failure(const fs::path& dir, int rank, const std::string& text,
                             const std::string& time) {
  write_survived(dir, time.empty() ? Others::kNone : Others::kRankZero, "recovery_failed", rank,
                 {{"message", Json(text)}}, time);
}

void EarlyEvents::record(Write write) {
  if (is_opened_) return write("");
  kept_.emplace_back(std::move(write), event_time());
}

void EarlyEvents::note_opened() {
  is_opened_ = true;
  for (const auto& [write, time] : std::exchange(kept_, {})) write(time);
}

void report_node_loss(const fs::path& dir, int first_rank, int num_ranks, const std::string& text,
                      const std::string& time) {
  Json::Array ranks;
  for (int r = 0; r < num_ranks; ++r) ranks.emplace_back(int64_t{first_rank} + r);
  write_survived(dir, first_rank == 0 && time.empty() ? Others::kNone : Others::kRankZero,
                 "node_lost", first_rank, {{"message", Json(text)}, {"ranks", Json(ranks)}}, time);
}

}  // namespace weft
