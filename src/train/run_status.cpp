// train/run_status.cpp: is somebody there, and what did the run say last.
#include "train/run_status.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/path.h"
#include "launch/hang_watch.h"
#include "net/heartbeat.h"
#include "train/lease.h"
#include "train/status_file.h"
#include "train/stored_run.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// None where it is missing or not as a run writes it.
std::optional<Json> read_status_file(const fs::path& dir) {
  const fs::path path = dir / kStatusFile;
  try {
    if (path_kind(path) != PathKind::kFile) return std::nullopt;
    Json json = parse_json(read_file(path, kMostStatusBytes), path.string());
    if (find_text(json, "state") && find_int(json, "pid") && find_int(json, "count")) return json;
  } catch (const UserError&) {
  }
  return std::nullopt;
}

// Whether a process holds the run's lock. A free lock is held, shared, for the time of two system
// calls; a start that meets it tries again for a second (RunLock).
bool is_locked(const fs::path& dir) {
  const int fd = ::open((dir / ".lock").c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return false;
  const bool is_free = ::flock(fd, LOCK_SH | LOCK_NB) == 0;
  const bool is_held = !is_free && errno == EWOULDBLOCK;
  ::close(fd);  // releases it
  return is_held;
}

// Whether the lock's holder, "process PID on HOST", is the file's writer or a rank that it lists.
bool is_holder_listed(const fs::path& dir, const Json& file) {
  const std::vector<std::string> lines = read_last_lines(dir / ".lock", 400);
  const Json* ranks = file.find("ranks");
  if (lines.empty() || !ranks || !ranks->is_array()) return false;
  const auto is_listed = [&](const Json& rank) {
    return lines[0].starts_with(fmt::format("process {} on ", find_int(rank, "pid").value_or(-1)));
  };
  return is_listed(file) ||
         std::any_of(ranks->as_array().begin(), ranks->as_array().end(), is_listed);
}

// Clocks of two machines are never compared: the file is watched.
bool is_renewed(const fs::path& dir, int64_t count) {
  constexpr int kLooks = 30;
  for (int i = 0; i < kLooks; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const std::optional<Json> now = read_status_file(dir);
    if (now && find_int(*now, "count") != count) return true;
  }
  return false;
}

bool is_end(const std::string& state) {
  return state == "finished" || state == "stopped" || state == "failed";
}

// Whether its writer is a process that we see.
bool is_here(const Json& file) {
  const int64_t pid = *find_int(file, "pid"), ticks = find_int(file, "start_ticks").value_or(0);
  return pid > 0 && pid <= INT32_MAX && ticks > 0 && start_ticks(static_cast<pid_t>(pid)) == ticks;
}

bool is_writer_alive(const fs::path& dir, const Json& file) {
  if (find_text(file, "host") != host_name()) return is_renewed(dir, *find_int(file, "count"));
  if (is_here(file)) return true;
  return is_locked(dir) && is_holder_listed(dir, file) &&  // of another container
         is_renewed(dir, *find_int(file, "count"));
}

void take_end(const Json& event, RunStatus* s) {
  const std::string name = *find_text(event, "event");
  s->state = name == "rank failed" ? "failed" : name;
  if (s->state == "failed") s->cause = find_text(event, "message").value_or("");
}

// Of a run whose process is gone.
void judge_end(RunStatus* s) {
  const std::string state = s->file ? *find_text(*s->file, "state") : "";
  if (is_end(state)) {
    s->state = state;
    s->cause = find_text(*s->file, "cause").value_or("");
  } else if (s->events.end) {
    take_end(*s->events.end, s);
  } else {
    s->state = "failed";
    s->cause = s->events.started
                   ? "its process is gone and has recorded no end: it was killed, or the machine "
                     "went down; the same command resumes from the newest checkpoint"
                   : "it ended before its first step";
  }
}

// A supervisor that is stopped, or waits for this very disk. Its clock is ours: since the machine
// was started.
void note_old_file(RunStatus* s) {
  constexpr double kOldS = 3;  // of a file that is written once per second
  const auto at_ms = find_int(*s->file, "at_ms");
  if (!at_ms || find_text(*s->file, "host") != host_name()) return;
  s->file_age_s = 1e-3 * static_cast<double>(std::max<int64_t>(0, monotonic_ms() - *at_ms));
  const auto pid = static_cast<int>(*find_int(*s->file, "pid"));
  const bool is_stopped = is_here(*s->file) && is_stopped_by_signal(pid);
  if (!is_stopped && s->file_age_s <= kOldS) return;
  const std::string why =
      is_stopped ? fmt::format("is stopped by a signal (kill -CONT {} lets it go on)", pid)
                 : std::string("has not written its status");
  s->note =
      fmt::format("the run's process {} {}; what follows is {:.1f} s old", pid, why, s->file_age_s);
}

void judge(const fs::path& dir, RunStatus* s) {
  const std::string state = s->file ? *find_text(*s->file, "state") : "";
  if (s->file && !is_end(state) && is_writer_alive(dir, *s->file)) {
    s->is_live = true;
    s->state = state;
    s->cause = find_text(*s->file, "cause").value_or("");
    s->note = find_text(*s->file, "note").value_or("");
    note_old_file(s);
  } else if (is_locked(dir)) {  // it has not opened the directory yet, or is an earlier weft's
    s->is_live = true;
    const bool is_earlier = !s->file && s->events.started && !s->events.end;
    s->state = is_earlier ? "running" : "starting";
    s->note = is_earlier ? "the run writes no status of its ranks"
                         : "the run has not written its status yet";
    s->file.reset();
  } else {
    judge_end(s);
  }
}

// With signs as old as they are now, not when the file was written.
Json aged(const Json& ranks, double file_age_s) {
  Json::Array all;
  if (!ranks.is_array()) return Json(std::move(all));
  for (Json rank : ranks.as_array()) {
    const auto age_s = rank.is_object() ? find_number(rank, "age_s") : std::nullopt;
    if (age_s) rank.set("age_s", Json(*age_s + file_age_s));
    all.push_back(std::move(rank));
  }
  return Json(std::move(all));
}

// Of the one rank that all others wait for; "": there is none, or it has not been silent for long.
std::string silent_rank_words(const Json& ranks) {
  constexpr double kLongS = 5;
  if (!ranks.is_array()) return "";
  const Json* silent = nullptr;
  bool is_waited_for = false;
  for (const Json& rank : ranks.as_array()) {
    if (!rank.is_object() || !find_int(rank, "pid")) continue;  // it has ended
    const Json* waits = rank.find("waits");
    if (waits && waits->is_bool() && waits->as_bool()) {
      is_waited_for = true;
    } else if (std::exchange(silent, &rank)) {
      return "";
    }
  }
  if (!silent || !is_waited_for) return "";
  const double age_s = find_number(*silent, "age_s").value_or(0);
  if (!(age_s >= kLongS)) return "";
  return fmt::format("the others wait for rank {} on {}, which has given no sign for {:.1f} s ({})",
                     find_int(*silent, "rank").value_or(-1),
                     find_text(*silent, "host").value_or("?"), age_s,
                     find_text(*silent, "phase").value_or("?"));
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace

std::optional<double> RunStatus::seconds_left() const {
  if (!is_live || !total_steps || !speed.step || !speed.step_s) return std::nullopt;
  return static_cast<double>(std::max<int64_t>(0, *total_steps - *speed.step)) * *speed.step_s;
}

Json RunStatus::to_json() const {
  const auto of_file = [&](const char* key) {
    const Json* value = file ? file->find(key) : nullptr;
    return value ? *value : Json();
  };
  const Json restarts = of_file("restarts"), max_restarts = of_file("max_restarts");
  const bool has_limit = restarts.is_int() && max_restarts.is_int() && max_restarts.as_int() >= 0;
  Json out;
  out.set("dir", Json(dir));
  out.set("state", Json(state));
  out.set("cause", cause.empty() ? Json() : Json(cause));
  out.set("note", note.empty() ? Json() : Json(note));
  out.set("live", Json(is_live));
  out.set("step", or_null(speed.step));
  out.set("total_steps", or_null(total_steps));
  out.set("epoch", or_null(speed.epoch));
  out.set("loss", or_null(speed.loss));
  out.set("eval_loss", or_null(speed.eval_loss));
  out.set("steps_per_s", speed.step_s ? Json(1 / *speed.step_s) : Json());
  out.set("tokens_per_s", or_null(speed.tokens_per_s));
  out.set("eta_s", or_null(seconds_left()));
  out.set("memory_bytes", of_file("memory_bytes"));
  out.set("planned_bytes", of_file("planned_bytes"));
  out.set("deaths", Json(events.num_deaths));
  out.set("restarts", restarts);
  out.set("max_restarts", max_restarts);
  out.set(
      "restarts_left",
      has_limit ? Json(std::max<int64_t>(0, max_restarts.as_int() - restarts.as_int())) : Json());
  out.set("generation", of_file("generation"));
  out.set("layout", of_file("layout"));
  out.set("spares", of_file("spares"));
  out.set("checkpoint", or_null(events.checkpoint));
  out.set("last_event", or_null(events.last));
  out.set("pid", of_file("pid"));
  out.set("host", of_file("host"));
  out.set("status_age_s", is_live && file ? Json(file_age_s) : Json());
  out.set("ranks", aged(of_file("ranks"), file_age_s));
  return out;
}

bool holds_run(const fs::path& dir) {
  return path_kind(dir) == PathKind::kFolder &&
         (is_run_dir(dir) || read_status_file(dir) || is_locked(dir));
}

RunStatus read_run_status(const fs::path& dir) {
  RunStatus s;
  s.dir = dir.string();
  s.file = read_status_file(dir);
  s.events = read_events(dir / "events.jsonl");
  s.speed = read_speed(dir / "metrics.jsonl");
  if (s.events.started) s.total_steps = find_int(*s.events.started, "total_steps");
  judge(dir, &s);
  if (s.is_live && s.file && s.note.empty())
    if (const Json* ranks = s.file->find("ranks"))
      s.note = silent_rank_words(aged(*ranks, s.file_age_s));
  return s;
}

}  // namespace weft
