// base/log.h: lines for people, on standard error and in the rank's log file.
#pragma once

#include <fmt/core.h>

#include <filesystem>
#include <string>
#include <utility>

namespace weft {

enum class LogLevel { kInfo, kWarning, kError };

// quiet: only errors reach the terminal; the file still gets every line.
void set_log_quiet(bool quiet);
// The first file also gets the lines logged before it was set (at most 1,000).
void set_log_file(const std::filesystem::path& path);
void log_line(LogLevel level, const std::string& text);

template <typename... Args>
void log_info(fmt::format_string<Args...> text, Args&&... args) {
  log_line(LogLevel::kInfo, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warning(fmt::format_string<Args...> text, Args&&... args) {
  log_line(LogLevel::kWarning, fmt::format(text, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(fmt::format_string<Args...> text, Args&&... args) {
  log_line(LogLevel::kError, fmt::format(text, std::forward<Args>(args)...));
}

}  // namespace weft
