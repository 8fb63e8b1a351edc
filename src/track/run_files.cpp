// track/run_files.cpp: lines are assembled in a stack buffer and written in one call.
#include "track/run_files.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/path.h"
#include "base/shell_word.h"

namespace weft {
namespace {

// One line of JSON in a fixed buffer: keys are ours and short, values are numbers.
class LineBuffer {
 public:
  void add(const char* key, int64_t value) { put("{}\"{}\": {}", separator(), key, value); }
  void add(const char* key, double value) {
    if (std::isfinite(value)) {
      put("{}\"{}\": {:.17g}", separator(), key, value);
    } else {
      put("{}\"{}\": null", separator(), key);
    }
  }
  void add(const char* key, const std::optional<double>& value) {
    add(key, value.value_or(std::nan("")));
  }
  std::string_view finish() {
    put("}}\n");
    return {text_, size_};
  }

 private:
  const char* separator() const { return size_ == 0 ? "{" : ", "; }
  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    const size_t room = sizeof text_ - size_;
    const auto result = fmt::format_to_n(text_ + size_, room, format, std::forward<Args>(args)...);
    ensure(result.size <= room, "a line of metrics is too long");
    size_ += result.size;
  }
  char text_[1024];
  size_t size_ = 0;
};

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

// Adds a step line to the tail.
void count_step(const Json& line, MetricsTail& tail) {
  const int64_t epoch = line.at("epoch").as_int();
  if (epoch != tail.epoch) {
    tail.epoch = epoch;
    tail.epoch_loss = {};
    tail.is_epoch_reported = false;
  }
  tail.last_step = line.at("step").as_int();
  tail.time_s = line.at("time_s").as_number();
  tail.last_lr = line.at("lr").as_number();
  const Json& loss = line.at("loss");
  if (loss.is_null()) return;
  tail.last_loss = loss.as_number();
  tail.epoch_loss.add(loss.as_number(), line.at("target_tokens").as_int());
  if (!tail.best_loss || loss.as_number() < *tail.best_loss) tail.best_loss = loss.as_number();
}

struct KeptMetrics {
  MetricsTail tail;
  size_t bytes = 0;  // of the lines up to the step
};

// Whether the line is kept; then it is added to the tail.
bool take_line(const Json& line, int64_t step, MetricsTail& tail) {
  static_cast<void>(line.as_object());
  const Json* line_step = line.find("step");
  if (line_step && line_step->as_int() > step) return false;
  if (line_step && line.find("loss")) count_step(line, tail);
  if (line_step && line.find("eval_loss")) tail.last_eval_step = line_step->as_int();
  if (!line_step && line.find("mean_loss")) tail.is_epoch_reported = true;
  return true;
}

KeptMetrics read_until(const std::string& text, const std::filesystem::path& path, int64_t step) {
  KeptMetrics kept;
  for (int64_t number = 1; kept.bytes < text.size(); ++number) {
    const size_t end = text.find('\n', kept.bytes);
    if (end == std::string::npos) break;  // torn: the process died while writing
    const std::string_view line = std::string_view(text).substr(kept.bytes, end - kept.bytes);
    const std::string where = fmt::format("{}:{}", path.string(), number);
    try {
      if (!take_line(parse_json(line, where), step, kept.tail)) break;
    } catch (const UserError& e) {
      throw UserError(
          fmt::format("{} was not written by a run ({}); nothing was changed", where, e.what()),
          fmt::format(
              "keep a copy and delete line {} of it (sed -i {}d {}); or move the file away: "
              "the run then continues without its earlier losses",
              number, number, shell_word(path.string())));
    }
    kept.bytes = end + 1;
  }
  return kept;
}

void shorten(const std::filesystem::path& path, size_t bytes) {
  std::error_code bad;
  std::filesystem::resize_file(path, bytes, bad);
  if (bad) throw RunError(fmt::format("cannot truncate {}: {}", path.string(), bad.message()));
}

void keep_lines(const std::filesystem::path& path, std::string_view lines) {
  const size_t end = lines.rfind('\n') + 1;  // not a torn one; 0 where there is none
  if (end == 0) return;
  FileWriter file(path.string() + ".abandoned", FileWriter::Mode::kAppend);
  file.write(lines.substr(0, end));
  file.sync();
}

}  // namespace

void EpochLoss::add(double loss, int64_t target_tokens) {
  sum_ += loss * static_cast<double>(target_tokens);
  targets_ += target_tokens;
}

std::optional<double> EpochLoss::mean() const {
  if (targets_ == 0) return std::nullopt;
  return sum_ / static_cast<double>(targets_);
}

Json EpochLoss::to_json() const {
  return Json(Json::Object{{"sum", Json(sum_)}, {"targets", Json(targets_)}});
}

EpochLoss EpochLoss::from_json(const Json& kept) {
  EpochLoss loss;
  loss.sum_ = kept.at("sum").as_number();
  loss.targets_ = kept.at("targets").as_int();
  return loss;
}

void cut_to_bytes(const std::filesystem::path& path, int64_t bytes) {
  std::error_code bad;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, bad));
  if (bad || size < bytes) {
    throw RunError(
        fmt::format("{} has {} bytes, but {} were written: something else has changed it",
                    path.string(), bad ? 0 : size, bytes));
  }
  if (size > bytes) shorten(path, static_cast<size_t>(bytes));
}

MetricsTail cut_metrics_after(const std::filesystem::path& path, int64_t step, bool keeps_cut) {
  if (path_kind(path) == PathKind::kNothing) return {};
  const std::string text = read_file(path);
  const KeptMetrics kept = read_until(text, path, step);
  if (keeps_cut) keep_lines(path, std::string_view(text).substr(kept.bytes));
  if (kept.bytes < text.size()) shorten(path, kept.bytes);
  return kept.tail;
}

void check_metrics(const std::filesystem::path& path, int64_t step) {
  if (path_kind(path) != PathKind::kNothing) read_until(read_file(path), path, step);
}

void cut_torn_line(const std::filesystem::path& path) {
  if (path_kind(path) == PathKind::kNothing) return;
  const std::string text = read_file(path);
  const size_t end = text.rfind('\n') + 1;  // 0 where there is none
  if (end < text.size()) shorten(path, end);
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path)
    : file_(path, FileWriter::Mode::kAppend) {}

void MetricsWriter::write(const StepMetrics& m) {
  LineBuffer line;
  line.add("step", m.step);
  line.add("epoch", m.epoch);
  line.add("loss", m.loss);
  line.add("grad_norm", m.grad_norm);
  line.add("lr", m.lr);
  line.add("tokens", m.tokens);
  line.add("target_tokens", m.target_tokens);
  line.add("step_ms", m.step_ms);
  line.add("tokens_per_s", m.tokens_per_s);
  line.add("mem_bytes", m.mem_bytes);
  line.add("time_s", m.time_s);
  if (m.loss_scale) line.add("loss_scale", *m.loss_scale);
  file_.write(line.finish());
}

void MetricsWriter::write(const EpochMetrics& m) {
  LineBuffer line;
  line.add("epoch", m.epoch);
  line.add("mean_loss", m.mean_loss);
  line.add("time_s", m.time_s);
  file_.write(line.finish());
}

void MetricsWriter::write(const EvalMetrics& m) {
  Json::Object line{{"step", m.step},
                    {"eval_loss", m.eval_loss ? Json(*m.eval_loss) : Json()},
                    {"eval_time_s", m.eval_time_s}};
  line.insert(line.end(), m.more.begin(), m.more.end());
  file_.write(Json(std::move(line)).dump() + "\n");
}

std::string event_time() {
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03d}Z", fmt::gmtime(seconds),
                     now.time_since_epoch().count() % 1000);
}

EventWriter::EventWriter(const std::filesystem::path& path, int rank)
    : file_(path, FileWriter::Mode::kAppend), rank_(rank), host_(host_name()) {}

void EventWriter::write(std::string_view event, const Json::Object& more, const std::string& time) {
  Json::Object line{{"event", event},
                    {"time", time.empty() ? event_time() : time},
                    {"rank", rank_},
                    {"host", host_}};
  line.insert(line.end(), more.begin(), more.end());
  file_.write(Json(std::move(line)).dump() + "\n");
}

}  // namespace weft
