// planning/cluster_report_text.cpp: the report as text and as JSON.
#include <fmt/core.h>

#include "planning/cluster_report.h"
#include "planning/plan_report.h"
#include "planning/text_table.h"
#include "track/progress.h"

namespace weft {
namespace {

// "1.3 s", "84.1 ms", "12 us"; of days: "4.2 days".
std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 120) return fmt::format("{:.2f} s", seconds);
  if (seconds < 2 * 3600) return fmt::format("{:.1f} minutes", seconds / 60);
  if (seconds < 2 * 86400) return fmt::format("{:.1f} hours", seconds / 3600);
  return fmt::format("{:.1f} days", seconds / 86400);
}

std::string plural(int64_t n, const char* word) {
  return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
}

std::string parts_text(const StepTimes& t) {
  std::string text;
  const auto line = [&](const char* what, double seconds) {
    text += fmt::format("  {:<42} {:>12.2f} ms {:>6.1f} %\n", what, seconds * 1e3,
                        100 * seconds / t.step);
  };
  line("matrix products", t.products);
  line("attention", t.attention);
  line("memory-bound operations", t.memory);
  line("between operations", t.gaps);
  line("collectives that nothing overlaps", t.in_line);
  line("waiting for overlapped collectives", t.waiting);
  line("step", t.step);
  return text;
}

std::string collectives_text(const ClusterReport& r) {
  if (r.collectives.empty()) return "";
  TextTable table({{"collective", 15, TextTable::Align::kLeft},
                   {"axis", 5, TextTable::Align::kLeft},
                   {"ranks", 6},
                   {"nodes", 6},
                   {"calls", 8},
                   {"bytes given", 18},
                   {"ms", 12}});
  for (const CollectiveTime& c : r.collectives) {
    table.add({comm_op_name(c.item.op), axis_name(c.item.axis), std::to_string(c.item.ranks),
               std::to_string(c.nodes), std::to_string(c.item.calls),
               format_count(static_cast<double>(c.item.bytes)),
               fmt::format("{:.2f}", c.seconds * 1e3)});
  }
  return "\n" + table.text();
}

std::string failures_text(const ClusterReport& r) {
  if (r.failures_per_s() == 0) return "failures: none (failures.node_mtbf_hours is 0)\n";
  TextTable table({{"continues", 22, TextTable::Align::kLeft},
                   {"saved", 16},
                   {"each costs", 12},
                   {"after a failure", 16},
                   {"goodput", 11}});
  const auto add = [&](const char* what, const SurvivalPlan& s) {
    table.add({what, "every " + plural(s.steps, "step"), time_text(s.recovery.secure_s),
               time_text(s.recovery.recovery_s), fmt::format("{:.2f} %", 100 * s.goodput)});
  };
  if (r.from_memory) add("from memory", *r.from_memory);
  add("from storage", r.from_storage);
  return fmt::format("a failure every {} on {}:\n{}", time_text(1 / r.failures_per_s()),
                     plural(r.nodes(), "node"), table.text());
}

Json survival_json(const SurvivalPlan& s) {
  return Json(Json::Object{{"every_steps", s.steps},
                           {"cost_s", s.recovery.secure_s},
                           {"recovery_s", s.recovery.recovery_s},
                           {"goodput", s.goodput}});
}

}  // namespace

std::string ClusterReport::to_text() const {
  const std::string named = cluster.name.empty() ? "" : fmt::format(" ({})", cluster.name);
  std::string text = fmt::format(
      "{} parameters; {} on {}: {} of {}{}\n"
      "one step feeds {} positions in {} pass{} per rank; rank 0 computes {:.2f} GFLOP\n\n",
      format_count(static_cast<double>(num_parameters)), describe(layout),
      describe_ranks(layout.num_ranks(), cluster.has_gpus(), 1), plural(nodes(), "node"),
      plural(ranks_per_node, "rank"), named, tokens, num_passes, num_passes == 1 ? "" : "es",
      flops * 1e-9);
  for (const std::string& note : notes) text += note + "\n\n";
  text += fmt::format("one step of rank 0:\n{}{}\n", parts_text(times), collectives_text(*this));
  text += fmt::format(
      "expected step: {}, {} tokens/s, {} per rank\n"
      "MFU {:.1f} % of {:g} TFLOP/s; exposed communication {:.1f} % of the step\n"
      "memory of rank 0 without the scratch of kernels: {}\n",
      time_text(times.step), format_count(tokens_per_s()),
      format_count(tokens_per_s() / layout.num_ranks()), 100 * mfu(), cluster.device.peak_tflops,
      100 * times.exposed() / times.step, format_bytes(memory));
  return text + failures_text(*this);
}

Json ClusterReport::to_json() const {
  Json::Array moved, lines;
  for (const std::string& note : notes) lines.emplace_back(note);
  for (const CollectiveTime& c : collectives) {
    moved.emplace_back(Json::Object{{"op", comm_op_name(c.item.op)},
                                    {"axis", axis_name(c.item.axis)},
                                    {"ranks", c.item.ranks},
                                    {"nodes", c.nodes},
                                    {"calls", c.item.calls},
                                    {"bytes", c.item.bytes},
                                    {"ms", c.seconds * 1e3}});
  }
  const double rate = failures_per_s();
  return Json(Json::Object{{"cluster", cluster.name},
                           {"layout", describe(layout)},
                           {"ranks", layout.num_ranks()},
                           {"nodes", nodes()},
                           {"parameters", num_parameters},
                           {"tokens", tokens},
                           {"flops", flops},
                           {"memory", memory},
                           {"fits", fits()},
                           {"step_ms", times.step * 1e3},
                           {"parts_ms", Json(Json::Object{{"products", times.products * 1e3},
                                                          {"attention", times.attention * 1e3},
                                                          {"memory", times.memory * 1e3},
                                                          {"between", times.gaps * 1e3},
                                                          {"in_line", times.in_line * 1e3},
                                                          {"waiting", times.waiting * 1e3}})},
                           {"communication_lane_ms", times.lane * 1e3},
                           {"exposed_ms", times.exposed() * 1e3},
                           {"tokens_per_s", tokens_per_s()},
                           {"mfu", mfu()},
                           {"collectives", Json(std::move(moved))},
                           {"mtbf_s", rate > 0 ? Json(1 / rate) : Json()},
                           {"from_memory", from_memory ? survival_json(*from_memory) : Json()},
                           {"from_storage", survival_json(from_storage)},
                           {"notes", Json(std::move(lines))}});
}

}  // namespace weft
