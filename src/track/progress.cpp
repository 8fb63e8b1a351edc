// track/progress.cpp: the progress line.
#include "track/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace weft {
namespace {

constexpr int kBarCells = 20, kLeastBarCells = 5;
constexpr double kMinSecondsBetweenLines = 0.1;
constexpr double kSecondsBetweenPlainParts = 10;  // one line each in a log

// The current width: people resize their windows. A terminal that does not report it (serial lines,
// some containers) falls back to COLUMNS.
int terminal_columns(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* given = std::getenv("COLUMNS");
  const int columns = given ? std::atoi(given) : 0;
  return columns > 0 ? columns : 80;
}

// As many whole fields (separated by two blanks) as fit, so that the line never wraps and no number
// loses digits. The text is ASCII.
std::string fit(const std::string& text, int columns) {
  const size_t room = static_cast<size_t>(std::max(0, columns));
  if (text.size() <= room) return text;
  const size_t end = text.rfind("  ", room);
  return text.substr(0, end == std::string::npos ? room : end);
}

std::string format_loss(const std::optional<double>& loss) {
  if (!loss) return "-";
  return std::abs(*loss) < 0.01 ? fmt::format("{:.2e}", *loss) : fmt::format("{:.4f}", *loss);
}

}  // namespace

ProgressStyle choose_progress_style(bool quiet) {
  if (quiet) return ProgressStyle::kQuiet;
  return ::isatty(2) ? ProgressStyle::kTerminal : ProgressStyle::kPlain;
}

std::string format_duration(double seconds) {
  const auto s = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02} h", s / 3600, s / 60 % 60);
}

std::string format_bytes(int64_t bytes) {
  const double b = static_cast<double>(bytes);
  if (b >= 1024.0 * 1024 * 1024) return fmt::format("{:.1f} GiB", b / (1024.0 * 1024 * 1024));
  if (b >= 1024.0 * 1024) return fmt::format("{:.0f} MiB", b / (1024.0 * 1024));
  return b >= 1024 ? fmt::format("{:.0f} KiB", b / 1024) : fmt::format("{} B", bytes);
}

std::string format_count(double count) {
  const std::string digits = fmt::format("{:.0f}", count);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool is_group = i > 0 && (digits.size() - i) % 3 == 0 && digits[i - 1] != '-';
    if (is_group) out += ',';
    out += digits[i];
  }
  return out;
}

Progress::Progress(ProgressStyle style, int64_t total_steps, int64_t log_every, int fd)
    : style_(style),
      total_steps_(total_steps),
      log_every_(log_every),
      fd_(fd),
      has_colour_(!std::getenv("NO_COLOR")) {}

Progress::~Progress() {
  if (is_shown_) put("\n");
}

// Failing to write to the terminal is no reason to stop a run.
void Progress::put(std::string_view text) const {
  while (!text.empty()) {
    const ssize_t n = ::write(fd_, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

std::string Progress::bar(int64_t step, int cells) const {
  constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int64_t full = int64_t{cells} * 8;
  const int64_t eighths = std::min(full, step * full / std::max<int64_t>(1, total_steps_));
  std::string out;
  for (int64_t i = 0; i < eighths / 8; ++i) out += "█";
  out += kEighths[eighths % 8];
  for (int64_t i = (eighths + 7) / 8; i < cells; ++i) out += "·";
  return out;
}

std::string Progress::text(const StepMetrics& line) const {
  std::string out = total_steps_ > 0 ? fmt::format("step {}/{}", line.step, total_steps_)
                                     : fmt::format("step {}", line.step);
  out += fmt::format("  loss {}  {} tok/s  {}", format_loss(line.loss),
                     format_count(line.tokens_per_s), format_bytes(line.mem_bytes));
  if (total_steps_ > line.step) {
    const double left_s = static_cast<double>(total_steps_ - line.step) * step_ms_ / 1000;
    out += fmt::format("  {} left", format_duration(left_s));
  } else {
    out += fmt::format("  {}", format_duration(line.time_s));
  }
  return out;
}

void Progress::step(const StepMetrics& line) {
  if (style_ == ProgressStyle::kQuiet) return;
  step_ms_ = step_ms_ == 0 ? line.step_ms : 0.9 * step_ms_ + 0.1 * line.step_ms;
  const bool is_last = line.step == total_steps_;
  if (log_every_ == 0) return;
  if (style_ == ProgressStyle::kPlain) {
    if (line.step % log_every_ == 0 || is_last) put(text(line) + "\n");
    return;
  }
  const bool is_due = shown_at_ < 0 || line.time_s - shown_at_ >= kMinSecondsBetweenLines;
  if (!is_due && !is_last) return;
  shown_at_ = line.time_s;
  is_shown_ = true;
  // One column stays free: a character in the last one makes some terminals wrap.
  const int columns = terminal_columns(fd_) - 1;
  const std::string words = fit(text(line), columns);
  const int cells = std::min(kBarCells, columns - static_cast<int>(words.size()) - 1);
  std::string out = "\r\x1b[K";
  if (total_steps_ > 0 && cells >= kLeastBarCells) {
    out += fmt::format("{}{}{} ", has_colour_ ? "\x1b[36m" : "", bar(line.step, cells),
                       has_colour_ ? "\x1b[0m" : "");
  }
  put(out + words);
}

void Progress::part(std::string_view what, double part, double seconds) {
  if (style_ == ProgressStyle::kQuiet) return;
  if (seconds < part_shown_at_) part_shown_at_ = 0;  // new work
  const bool plain = style_ == ProgressStyle::kPlain;
  if (seconds - part_shown_at_ < (plain ? kSecondsBetweenPlainParts : kMinSecondsBetweenLines))
    return;
  part_shown_at_ = seconds;
  std::string text = fmt::format("{}: {:.0f} %", what, 100 * part);
  if (part > 0) text += fmt::format("  {} left", format_duration(seconds * (1 - part) / part));
  if (plain) return put(text + "\n");
  is_shown_ = true;
  put("\r\x1b[K" + fit(text, terminal_columns(fd_) - 1));
}

void Progress::clear() {
  if (!is_shown_) return;
  put("\r\x1b[K");
  is_shown_ = false;
}

}  // namespace weft
