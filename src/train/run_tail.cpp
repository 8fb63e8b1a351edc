// train/run_tail.cpp: lines from the end, as far as they are JSON.
#include "train/run_tail.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/path.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMetricsBytes = 64 << 10;  // some hundred steps
constexpr int64_t kEventsBytes = 4 << 20;
constexpr size_t kMostSteps = 50;  // for means

std::optional<Json> parse_object(const std::string& line) {
  try {
    Json json = parse_json(line, "a line");
    if (json.is_object()) return json;
  } catch (const UserError&) {
  }
  return std::nullopt;
}

// A last part of a file that may grow, shrink or be replaced meanwhile.
std::string read_end(const fs::path& path, int64_t max_bytes, bool* is_cut) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw_refused("read", path, errno);
  const int64_t size = ::lseek(fd, 0, SEEK_END), from = std::max<int64_t>(0, size - max_bytes);
  *is_cut = from > 0;
  std::string text(static_cast<size_t>(std::clamp<int64_t>(size, 0, max_bytes)), '\0');
  size_t got = 0;
  while (got < text.size()) {
    const ssize_t n = ::pread(fd, text.data() + got, text.size() - got,
                              static_cast<off_t>(from + static_cast<int64_t>(got)));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += static_cast<size_t>(n);
  }
  ::close(fd);
  text.resize(got);
  return text;
}

bool is_step_folder(const Json& event) {
  const std::string path = find_text(event, "path").value_or("");
  return fs::path(path).filename().string().starts_with("step-");
}

// A node and ranks that are lost together are one death. A loss counts when the run has gone on, or
// as long as it waits; one that ends the run is no more counted than a rank's. A node that had no
// ranks, since it could not start them, has cost nothing.
class DeathCount {
 public:
  void add(const std::string& event, const Json& fields) {
    const bool goes_on = event == "recovered" || event == "started" || event == "layout" ||
                         event == "finished" || event == "stopped";
    if (event == "rank_died" || (is_node_lost_ && goes_on)) ++count_;
    const Json* ranks = fields.find("ranks");
    const bool had_ranks = !ranks || !ranks->is_array() || !ranks->as_array().empty();
    if (event == "node_lost")
      is_node_lost_ = is_node_lost_ || had_ranks;
    else if (event == "rank_died" || goes_on || event == "rank failed" || event == "failed")
      is_node_lost_ = false;
  }
  int64_t count() const { return count_ + (is_node_lost_ ? 1 : 0); }

 private:
  int64_t count_ = 0;
  bool is_node_lost_ = false;  // and nothing is known of what followed
};

}  // namespace

std::vector<std::string> read_last_lines(const fs::path& path, int64_t max_bytes) {
  if (path_kind(path) != PathKind::kFile) return {};
  bool is_cut = false;
  const std::string text = read_end(path, max_bytes, &is_cut);
  std::vector<std::string> lines;
  for (size_t begin = 0;;) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // being written, or torn
    if (!is_cut || begin > 0) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

std::optional<int64_t> find_int(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value && value->is_int() ? std::optional(value->as_int()) : std::nullopt;
}

std::optional<double> find_number(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  if (!value || !value->is_number() || value->is_large()) return std::nullopt;
  return value->as_number();
}

std::optional<std::string> find_text(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value && value->is_string() ? std::optional(value->as_string()) : std::nullopt;
}

SpeedTail read_speed(const fs::path& metrics) {
  const std::vector<std::string> lines = read_last_lines(metrics, kMetricsBytes);
  SpeedTail tail;
  size_t steps = 0;
  double seconds = 0, tokens = 0;
  for (auto line = lines.rbegin(); line != lines.rend() && steps < kMostSteps; ++line) {
    const std::optional<Json> json = parse_object(*line);
    if (!json) continue;
    if (!tail.eval_loss) tail.eval_loss = find_number(*json, "eval_loss");
    const auto step = find_int(*json, "step");
    const auto step_ms = find_number(*json, "step_ms");
    if (!step || !step_ms || *step_ms <= 0) continue;
    if (steps++ == 0) {
      tail.step = step;
      tail.epoch = find_int(*json, "epoch");
      tail.loss = find_number(*json, "loss");
    }
    seconds += *step_ms / 1e3;
    tokens += find_number(*json, "tokens_per_s").value_or(0) * *step_ms / 1e3;
  }
  if (steps == 0) return tail;
  tail.step_s = seconds / static_cast<double>(steps);
  tail.tokens_per_s = tokens / seconds;
  return tail;
}

EventTail read_events(const fs::path& events) {
  EventTail tail;
  DeathCount deaths;
  for (const std::string& line : read_last_lines(events, kEventsBytes)) {
    std::optional<Json> json = parse_object(line);
    if (!json) continue;
    const std::string name = find_text(*json, "event").value_or("");
    if (name.empty()) continue;
    if (name == "started") {
      tail.started = json;
      tail.end.reset();
    }
    if (name == "finished" || name == "stopped" || name == "failed" || name == "rank failed")
      tail.end = json;
    if (name == "checkpoint" && is_step_folder(*json)) tail.checkpoint = json;
    deaths.add(name, *json);
    tail.last = std::move(json);
  }
  tail.num_deaths = deaths.count();
  return tail;
}

}  // namespace weft
