// cmd/status_text.cpp: a few labeled lines, then one line per rank.
#include "cmd/status_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/printable.h"
#include "track/progress.h"

namespace weft {
namespace {

constexpr int64_t kMostRanks = 4096;  // lines; a file that is not ours may claim any number

std::string line(const char* label, const std::string& text) {
  return text.empty() ? "" : fmt::format("  {:<12}{}\n", label, printable_line(text));
}

std::string progress(const RunStatus& s) {
  std::string text;
  if (s.speed.step) text = fmt::format(", step {}", *s.speed.step);
  if (s.speed.step && s.total_steps) text += fmt::format(" of {}", *s.total_steps);
  if (s.speed.epoch) text += fmt::format(", epoch {}", *s.speed.epoch);
  if (s.speed.loss) text += fmt::format(", loss {:.4f}", *s.speed.loss);
  if (s.speed.eval_loss) text += fmt::format(", eval loss {:.4f}", *s.speed.eval_loss);
  return text;
}

std::string speed(const RunStatus& s) {
  if (!s.speed.step_s) return "";
  const double rate = 1 / *s.speed.step_s;
  std::string text = fmt::format("{} steps/s, {} tokens/s",
                                 rate < 100 ? fmt::format("{:.3g}", rate) : format_count(rate),
                                 format_count(s.speed.tokens_per_s.value_or(0)));
  if (const auto left = s.seconds_left())
    text += fmt::format(", about {} left", format_duration(*left));
  return text;
}

std::string memory(const Json& status) {
  const auto used = find_int(status, "memory_bytes"), planned = find_int(status, "planned_bytes");
  const bool is_live = status.at("live").as_bool();
  if (!used || !is_live) return "";
  if (!planned) return format_bytes(*used);
  return fmt::format("{} of {} planned", format_bytes(*used), format_bytes(*planned));
}

std::string restarts(const Json& status) {
  const auto used = find_int(status, "restarts"), most = find_int(status, "max_restarts"),
             deaths = find_int(status, "deaths");
  std::string text;
  if (used && most && *most > 0)
    text = fmt::format("{} of {} used, {} left", *used, *most, std::max<int64_t>(0, *most - *used));
  if (used && most && *most < 0) text = fmt::format("{} used, no limit", *used);
  if (deaths.value_or(0) > 0)
    text += fmt::format("{}{} in the run so far", text.empty() ? "" : "; ", *deaths);
  return text;
}

// Of an elastic run.
std::string layout(const Json& status) {
  const Json* layout = status.find("layout");
  const auto text = layout ? find_text(*layout, "text") : std::nullopt;
  if (!text) return "";
  const auto number = [&](const char* key) { return find_int(*layout, key).value_or(0); };
  const int64_t asked = number("nodes_asked"), spares = number("spares");
  const auto source = find_text(*layout, "source");
  return *text + (asked != number("nodes") ? fmt::format(" of {} asked for", asked) : "") +
         (spares > 0 ? fmt::format(", {} waiting as spare{}", spares, spares == 1 ? "" : "s")
                     : "") +
         (source ? fmt::format(", from {}", *source) : "");
}

// An elastic run's are in its layout.
std::string spares(const Json& status) {
  const auto waiting = find_int(status, "spares");
  if (waiting.value_or(0) <= 0 || !layout(status).empty()) return "";
  return fmt::format("{} waiting", *waiting);
}

std::string event_line(const std::optional<Json>& event) {
  if (!event) return "";
  std::string text = find_text(*event, "event").value_or("?");
  if (const auto step = find_int(*event, "step"))
    text += fmt::format(" {} step {}", text == "checkpoint" ? "of" : "at", *step);
  if (const auto message = find_text(*event, "message")) text += ": " + *message;
  return fmt::format("{} ({})", text, find_text(*event, "time").value_or("at an unknown time"));
}

std::string checkpoint_line(const std::optional<Json>& event) {
  if (!event) return "";
  return fmt::format("step {} ({})", find_int(*event, "step").value_or(0),
                     find_text(*event, "time").value_or("at an unknown time"));
}

std::string age(const Json& rank) {
  const auto seconds = find_number(rank, "age_s");
  return seconds && std::isfinite(*seconds) ? fmt::format("{:.1f} s", *seconds) : "?";
}

std::string process(const Json& rank) {
  const auto pid = find_int(rank, "pid");
  return pid ? std::to_string(*pid) : "-";
}

std::string rank_lines(const Json& ranks) {
  std::string text = fmt::format("  {:>5}  {:<20}  {:>8}  {:<27}  {:>9}  {:>9}  {:>9}\n", "rank",
                                 "host", "process", "phase", "step", "last sign", "memory");
  int64_t count = 0;
  for (const Json& rank : ranks.as_array()) {
    if (++count > kMostRanks) break;
    const auto number = [&](const char* key) { return find_int(rank, key).value_or(0); };
    const Json* waits = rank.find("waits");
    const bool is_waiting = waits && waits->is_bool() && waits->as_bool();
    text += fmt::format(
        "  {:>5}  {:<20}  {:>8}  {:<27}  {:>9}  {:>9}  {:>9}\n", number("rank"),
        printable_line(find_text(rank, "host").value_or("?")), process(rank),
        printable_line(find_text(rank, "phase").value_or("?")) + (is_waiting ? ", waits" : ""),
        number("step"), age(rank), format_bytes(number("memory_bytes")));
  }
  return text;
}

}  // namespace

std::string status_text(const RunStatus& s) {
  const Json json = s.to_json();
  std::string text = fmt::format("{}: {}{}\n", printable_line(s.dir), s.state, progress(s));
  text += line(s.state == "failed" ? "cause" : "last death", s.cause);
  text += line("note", s.note);
  text += line("speed", speed(s));
  text += line("memory", memory(json));
  text += line("restarts", restarts(json));
  text += line("layout", layout(json));
  text += line("spares", spares(json));
  text += line("checkpoint", checkpoint_line(s.events.checkpoint));
  text += line("last event", event_line(s.events.last));
  if (s.is_live && !json.at("ranks").as_array().empty()) text += rank_lines(json.at("ranks"));
  return text;
}

}  // namespace weft
