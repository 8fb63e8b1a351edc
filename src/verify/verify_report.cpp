// verify/verify_report.cpp: the report as text and as JSON.
#include <algorithm>

#include "base/error.h"
#include "verify/verify.h"

namespace weft {
namespace {

constexpr size_t kNamesShown = 8;

std::string show(const std::optional<double>& v) { return v ? fmt::format("{:.5f}", *v) : "-"; }
std::string show_difference(double v) { return v == 0 ? "0" : fmt::format("{:.2e}", v); }

std::string show_count(int64_t different, int64_t of) {
  return of == 0 ? "-" : fmt::format("{}/{}", different, of);
}

size_t name_width(const std::vector<VerifyResult>& layouts) {
  size_t width = 6;
  for (const VerifyResult& r : layouts) width = std::max(width, r.name.size());
  return width;
}

std::string loss_table(const std::vector<VerifyResult>& layouts, size_t width) {
  std::string text =
      fmt::format("{:<{}}{:>11}{:>11}{:>11}{:>11}{:>12}{:>12}{:>12}\n", "layout", width, "initial",
                  "final", "min", "mean", "max diff", "mean diff", "final diff");
  for (size_t i = 0; i < layouts.size(); ++i) {
    const VerifyResult& r = layouts[i];
    const auto difference = [&](double v) { return i == 0 ? "-" : show_difference(v); };
    text += fmt::format("{:<{}}{:>11}{:>11}{:>11}{:>11}{:>12}{:>12}{:>12}\n", r.name, width,
                        show(r.initial), show(r.final), show(r.min), show(r.mean),
                        difference(r.max_diff), difference(r.mean_diff), difference(r.final_diff));
  }
  return text;
}

std::string bits_table(const std::vector<VerifyResult>& layouts, size_t width) {
  std::string text = fmt::format("{:<{}}{:>11}{:>11}{:>11}{:>11}{:>12}\n", "different in bits",
                                 width, "losses", "norms", "evals", "tensors", "eval loss");
  for (size_t i = 0; i < layouts.size(); ++i) {
    const VerifyResult& r = layouts[i];
    const auto count = [&](int64_t n, int64_t of) { return i == 0 ? "-" : show_count(n, of); };
    // Only the initial weights of a fast-mode layout are hashed, and 0 would claim more.
    const std::string tensors =
        r.bars.bits ? count(static_cast<int64_t>(r.tensors_different.size()), r.num_tensors) : "-";
    text +=
        fmt::format("{:<{}}{:>11}{:>11}{:>11}{:>11}{:>12}\n", r.name, width,
                    count(r.losses_different, r.num_steps), count(r.norms_different, r.num_steps),
                    count(r.evals_different, r.num_evals), tensors, show(r.eval));
  }
  return text;
}

// The tensor is the one that differed at that step, not the farthest at the end.
bool is_from_there(const VerifyResult& r) {
  return r.bars.bits || (r.tensor && r.tensor->ends_with("#grad"));
}

std::string verdict(const VerifyResult& r) {
  std::string text =
      fmt::format("{:<8}{}  ({})\n", r.ok() ? "ok" : "FAILED", r.name, r.bars.to_text());
  for (const std::string& note : r.notes) text += fmt::format("        {}\n", note);
  if (r.ok()) return text;
  for (const std::string& broken : r.broken) text += fmt::format("        {}\n", broken);
  if (r.first_bad_step) {
    text += *r.first_bad_step == 0 && r.tensor
                ? "        first in the initial weights"
                : fmt::format("        first at step {}", *r.first_bad_step);
    if (r.tensor)
      text += fmt::format(", {} {}", is_from_there(r) ? "tensor" : "and farthest at the end is",
                          *r.tensor);
    text += "\n";
  }
  if (!r.bars.bits || r.tensors_different.empty()) return text;
  const size_t shown = std::min(kNamesShown, r.tensors_different.size());
  text += "        tensors:";
  for (size_t i = 0; i < shown; ++i) text += fmt::format(" {}", r.tensors_different[i]);
  if (shown < r.tensors_different.size())
    text += fmt::format(" and {} more (verify.json)", r.tensors_different.size() - shown);
  return text + "\n";
}

}  // namespace

bool VerifyReport::ok() const {
  return std::all_of(layouts.begin(), layouts.end(), [](const auto& r) { return r.ok(); });
}

Json VerifyReport::to_json() const {
  Json::Array list;
  for (const VerifyResult& r : layouts) list.push_back(r.to_json());
  Json j;
  j.set("layouts", Json(std::move(list)));
  j.set("ok", Json(ok()));
  return j;
}

std::string VerifyReport::to_text() const {
  const size_t width = std::max<size_t>(name_width(layouts), 17);
  std::string text = fmt::format("{}\n\n{}", title, loss_table(layouts, width));
  const bool any_bits =
      std::any_of(layouts.begin() + 1, layouts.end(), [](const auto& r) { return r.bars.bits; });
  if (any_bits) text += fmt::format("\n{}", bits_table(layouts, width));
  text += "\n";
  for (size_t i = 1; i < layouts.size(); ++i) text += verdict(layouts[i]);
  return text + fmt::format("\n{}; files in {}\n", ok() ? "all layouts agree" : "verify FAILED",
                            out.string());
}

}  // namespace weft
