// train/status_file.cpp: the fields of .status.json.
#include "train/status_file.h"

#include <unistd.h>

#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/path.h"
#include "base/process_stat.h"
#include "base/version.h"
#include "track/memory.h"
#include "train/lease.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

Json rank_json(size_t rank, const RankStatus& status) {
  const int64_t age_ms = std::max<int64_t>(0, monotonic_ms() - status.sign.at_ms);
  const int64_t resident = !status.is_running           ? 0
                           : status.resident_bytes >= 0 ? status.resident_bytes
                                                        : memory_of_process(status.pid).resident;
  return Json(
      Json::Object{{"rank", Json(static_cast<int64_t>(rank))},
                   {"pid", status.is_running ? Json(int64_t{status.pid}) : Json()},
                   {"host", Json(status.host.empty() ? host_name() : status.host)},
                   {"phase", Json(status.is_running ? phase_name(status.sign.phase) : "ended")},
                   {"step", Json(status.sign.step)},
                   {"age_s", Json(1e-3 * static_cast<double>(age_ms))},
                   {"waits", Json(status.sign.is_waiting)},
                   {"memory_bytes", Json(resident)}});
}

// Of all processes of the run, every page once.
int64_t memory_bytes(const JobStatus& status) {
  int64_t bytes = status.shared_bytes;
  bool counts_self = true;
  for (const RankStatus& rank : status.ranks) {
    counts_self &= rank.pid != ::getpid();
    if (rank.is_running)
      bytes +=
          rank.anonymous_bytes >= 0 ? rank.anonymous_bytes : memory_of_process(rank.pid).anonymous;
  }
  return bytes + (counts_self ? anonymous_resident_bytes() : 0);
}

// Null where it cannot change.
Json layout_json(const JobStatus& status) {
  if (status.layout.empty()) return {};
  return Json(Json::Object{{"text", Json(status.layout)},
                           {"nodes", Json(status.num_nodes)},
                           {"nodes_asked", Json(status.nodes_asked)},
                           {"spares", Json(status.num_spares)},
                           {"source", status.source.empty() ? Json() : Json(status.source)}});
}

constexpr int kRefused = 2;

const char* state_of_exit(int code) {
  if (code == 0) return "finished";
  return code > 128 ? "stopped" : "failed";  // 128 + a signal's number: saved
}

}  // namespace

int64_t start_ticks(pid_t pid) {
  const auto stat = read_process_stat(pid);
  return stat && stat->state != 'Z' && stat->state != 'X' ? stat->start_ticks : 0;
}

StatusFile::~StatusFile() { stop(); }

void StatusFile::write(const JobStatus& status) {
  last_ = status;
  if (!status.is_opened && !status.is_announced) return;
  {
    const std::lock_guard lock(mutex_);
    next_ = status;
  }
  changed_.notify_all();
  if (thread_.joinable() || has_no_thread_) return;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error&) {  // no thread, no status: the run does not need it
    has_no_thread_ = true;
    next_.reset();
  }
}

void StatusFile::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return next_ || is_ending_; });
    if (!next_) return;
    const JobStatus status = *std::exchange(next_, std::nullopt);
    is_writing_ = true;
    lock.unlock();
    put(status, std::nullopt);
    lock.lock();
    is_writing_ = false;
    changed_.notify_all();
  }
}

void StatusFile::flush() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !next_ && !is_writing_; });
}

void StatusFile::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StatusFile::end(int exit_code, const std::string& cause) {
  stop();
  if (!last_.is_opened && !has_announced_) return;
  if (!last_.is_opened && exit_code == kRefused) return restore();
  JobStatus status = last_;
  status.state = state_of_exit(exit_code);
  status.cause = status.state == "failed" ? cause : "";
  status.note.clear();
  status.num_spares = 0;  // they have left with the run
  for (RankStatus& rank : status.ranks) rank.is_running = false;
  put(status, exit_code);
}

// A run that waits for nodes shows it; one that is refused then has changed nothing.
void StatusFile::announce() {
  has_announced_ = true;
  if (path_kind(dir_ / kStatusFile) == PathKind::kFile)
    before_ = read_file(dir_ / kStatusFile, kMostStatusBytes);
}

void StatusFile::restore() {
  try {
    if (before_) return write_file_atomic(dir_ / kStatusFile, *before_);
    fs::remove(dir_ / kStatusFile);
  } catch (const std::exception& e) {
    log_warning("the status of the run before could not be restored: {}", e.what());
  }
}

void StatusFile::put(const JobStatus& status, std::optional<int> exit_code) {
  Json::Array ranks;
  for (size_t r = 0; r < status.ranks.size(); ++r) ranks.push_back(rank_json(r, status.ranks[r]));
  const Json text(Json::Object{{"weft", Json(kWeftVersion)},
                               {"state", Json(status.state)},
                               {"cause", status.cause.empty() ? Json() : Json(status.cause)},
                               {"note", status.note.empty() ? Json() : Json(status.note)},
                               {"exit_code", exit_code ? Json(int64_t{*exit_code}) : Json()},
                               {"pid", Json(int64_t{::getpid()})},
                               {"start_ticks", Json(start_ticks(::getpid()))},
                               {"host", Json(host_name())},
                               {"count", Json(++count_)},
                               {"at_ms", Json(monotonic_ms())},
                               {"restarts", Json(status.num_restarts)},
                               {"max_restarts", Json(status.max_restarts)},
                               {"generation", Json(status.generation)},
                               {"layout", layout_json(status)},
                               {"spares", Json(status.num_spares)},
                               {"memory_bytes", Json(memory_bytes(status))},
                               {"planned_bytes", planned_bytes_ ? Json(*planned_bytes_) : Json()},
                               {"ranks", Json(std::move(ranks))}});
  try {
    if (!status.is_opened && !has_announced_) announce();
    const fs::path path = dir_ / kStatusFile, writing = path.string() + ".writing";
    FileWriter(writing, FileWriter::Mode::kTruncate)
        .write(text.dump(-1, Json::Digits::kShortest) + "\n");
    fs::rename(writing, path);
  } catch (const std::exception& e) {  // the run goes on; so does who reads the last one
    if (!std::exchange(has_failed_, true)) log_warning("no status for weft status: {}", e.what());
  }
}

}  // namespace weft
