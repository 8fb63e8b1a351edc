// base/log.cpp: spdlog behind three functions.
#include "base/log.h"

#include <fcntl.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/path.h"
#include "base/printable.h"

namespace weft {
namespace {

spdlog::logger& terminal() {
  static auto logger = [] {
    auto made = std::make_shared<spdlog::logger>(
        "terminal", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%^%v%$");
    return made;
  }();
  return *logger;
}

// Replaced while other threads log: in tests the ranks of a run are threads of one process.
std::atomic<std::shared_ptr<spdlog::logger>>& file() {
  static std::atomic<std::shared_ptr<spdlog::logger>> logger;
  return logger;
}

// Lines logged before the log file exists: the model and the data are opened before the run's
// folder is known.
struct EarlyLine {
  spdlog::log_clock::time_point time;
  spdlog::level::level_enum level;
  std::string text;
};
constexpr size_t kMostEarlyLines = 1000;
std::mutex early_mutex;
std::vector<EarlyLine> early_lines;

spdlog::level::level_enum translate(LogLevel level) {
  switch (level) {
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    default:
      return spdlog::level::info;
  }
}

}  // namespace

void set_log_quiet(bool quiet) {
  terminal().set_level(quiet ? spdlog::level::err : spdlog::level::info);
}

void set_log_file(const std::filesystem::path& path) {
  // spdlog would wait for the reader of a FIFO.
  if (const int fd = open_plain_file(path, O_WRONLY | O_CREAT | O_APPEND, 0644); fd >= 0)
    ::close(fd);
  try {
    auto made = std::make_shared<spdlog::logger>(
        "file", std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string()));
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
    made->flush_on(spdlog::level::info);
    const std::lock_guard lock(early_mutex);
    for (const EarlyLine& line : std::exchange(early_lines, {})) {
      made->log(line.time, spdlog::source_loc{}, line.level, line.text);
    }
    file() = std::move(made);
  } catch (const spdlog::spdlog_ex& e) {
    throw RunError(fmt::format("cannot write the log {}: {}", path.string(), e.what()));
  }
}

void log_line(LogLevel level, const std::string& text) {
  const char* prefix = level == LogLevel::kWarning ? "warning: "
                       : level == LogLevel::kError ? "error: "
                                                   : "";
  // The run file printed at startup has many lines.
  const std::string shown = level == LogLevel::kInfo ? printable(text) : printable_message(text);
  terminal().log(translate(level), "{}{}", prefix, shown);
  if (const auto to = file().load()) return to->log(translate(level), "{}", shown);
  const std::lock_guard lock(early_mutex);
  // Another thread may have opened it meanwhile.
  if (const auto to = file().load()) return to->log(translate(level), "{}", shown);
  if (early_lines.size() < kMostEarlyLines)
    early_lines.push_back({spdlog::log_clock::now(), translate(level), shown});
}

}  // namespace weft
