// track/plot_curve.cpp: reads, reduces and smooths the points of a run's curves.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "track/plot.h"

namespace weft {
namespace {

// More points than a picture has columns.
constexpr size_t kMostPoints = 2000;

struct LineNumbers {
  std::optional<double> step, loss, eval;
};

// Reads lines in the form of MetricsWriter: one object of numbers and nulls, with keys without
// escapes. A line takes 0.2 us; parse_json needs several. read() returns false for any other form.
class FlatLine {
 public:
  explicit FlatLine(std::string_view text) : text_(text) {}

  bool read(LineNumbers* to) {
    if (!take('{')) return false;
    do {
      std::string_view key;
      if (!take('"') || !take_key(&key) || !take(':') || !take_value(key, to)) return false;
    } while (take(','));
    return take('}') && (skip_blanks(), at_ == text_.size());
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  bool take(char c) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool take_key(std::string_view* key) {
    const size_t end = text_.find('"', at_);
    if (end == std::string_view::npos) return false;
    *key = text_.substr(at_, end - at_);
    at_ = end + 1;
    return key->find('\\') == std::string_view::npos;
  }

  bool take_value(std::string_view key, LineNumbers* to) {
    skip_blanks();
    std::optional<double>* value = key == "step"        ? &to->step
                                   : key == "loss"      ? &to->loss
                                   : key == "eval_loss" ? &to->eval
                                                        : nullptr;
    if (text_.substr(at_, 4) == "null") {
      at_ += 4;
      if (value) value->reset();
      return true;
    }
    const size_t begin = at_;
    while (at_ < text_.size() && is_of_number(text_[at_])) ++at_;
    if (begin == at_ || !value) return begin != at_;
    double number = 0;
    const auto [stop, error] = std::from_chars(text_.data() + begin, text_.data() + at_, number);
    *value = number;
    return error == std::errc() && stop == text_.data() + at_;
  }

  static bool is_of_number(char c) {
    return (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E';
  }

  std::string_view text_;
  size_t at_ = 0;
};

std::optional<double> number_at(const Json& line, const char* key) {
  const Json* value = line.find(key);
  if (!value || !value->is_number()) return std::nullopt;
  return value->as_number();
}

LineNumbers read_line(std::string_view text, const std::filesystem::path& path) {
  LineNumbers numbers;
  if (FlatLine(text).read(&numbers)) return numbers;
  const Json line = parse_json(text, path.string());
  const Json* step = line.find("step");
  if (!step) return {};
  return {step->as_number(), number_at(line, "loss"), number_at(line, "eval_loss")};
}

// One point for each group of neighbours: their mean, or the mean of logarithms on a log axis.
std::vector<CurvePoint> average_groups(const std::vector<CurvePoint>& points, bool is_log) {
  if (points.size() <= kMostPoints) return points;
  std::vector<CurvePoint> out;
  for (size_t k = 0, begin = 0; k < kMostPoints; ++k) {
    const size_t end = points.size() * (k + 1) / kMostPoints;
    const auto n = static_cast<double>(end - begin);
    CurvePoint sum;
    for (; begin < end; ++begin) {
      const CurvePoint& p = points[begin];
      sum.x += p.x;
      sum.y += is_log ? std::log(p.y) : p.y;
    }
    out.push_back({sum.x / n, is_log ? std::exp(sum.y / n) : sum.y / n});
  }
  return out;
}

}  // namespace

LossCurve read_loss_curve(const std::filesystem::path& metrics, const std::string& title) {
  LossCurve curve;
  curve.title = title;
  std::ifstream file(metrics, std::ios::binary);
  if (!file) throw RunError(fmt::format("cannot read {}", metrics.string()));
  // An unterminated last line is incomplete: its process died while writing.
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const LineNumbers numbers = read_line(line, metrics);
    if (!numbers.step) continue;
    if (numbers.loss) curve.train.push_back({*numbers.step, *numbers.loss});
    if (numbers.eval) curve.eval.push_back({*numbers.step, *numbers.eval});
  }
  if (file.bad()) throw RunError(fmt::format("cannot read {}", metrics.string()));
  return curve;
}

std::vector<CurvePoint> keep_extremes(const std::vector<CurvePoint>& points) {
  if (points.size() <= kMostPoints) return points;
  const size_t num_groups = kMostPoints / 2 - 1;
  const auto is_lower = [](const CurvePoint& a, const CurvePoint& b) { return a.y < b.y; };
  std::vector<CurvePoint> out = {points.front()};
  for (size_t k = 0, begin = 0; k < num_groups; ++k) {
    const size_t end = points.size() * (k + 1) / num_groups;
    const auto from = points.begin() + static_cast<std::ptrdiff_t>(begin);
    auto [low, high] =
        std::minmax_element(from, points.begin() + static_cast<std::ptrdiff_t>(end), is_lower);
    if (high < low) std::swap(low, high);
    out.push_back(*low);
    if (high != low) out.push_back(*high);
    begin = end;
  }
  out.push_back(points.back());
  return out;
}

// A straight line is fitted to the neighbours of each point (local regression): at the ends, where
// there are neighbours on one side only, an average would lag.
std::vector<CurvePoint> smooth(const std::vector<CurvePoint>& all, bool is_log) {
  const std::vector<CurvePoint> points = average_groups(all, is_log);
  const int64_t n = static_cast<int64_t>(points.size());
  const int64_t reach = std::max<int64_t>(1, n / 40);
  std::vector<CurvePoint> out;
  for (int64_t i = 0; i < n; ++i) {
    double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
    const double x0 = points[static_cast<size_t>(i)].x;
    for (int64_t j = std::max<int64_t>(0, i - reach); j <= std::min(n - 1, i + reach); ++j) {
      const CurvePoint& p = points[static_cast<size_t>(j)];
      const double weight = static_cast<double>(reach + 1 - std::abs(i - j)), x = p.x - x0;
      const double y = is_log ? std::log(p.y) : p.y;
      w += weight;
      wx += weight * x;
      wy += weight * y;
      wxx += weight * x * x;
      wxy += weight * x * y;
    }
    const double spread = w * wxx - wx * wx;
    const bool has_slope = n > 2 && spread > 0;
    const double y0 = has_slope ? (wxx * wy - wx * wxy) / spread : wy / w;
    out.push_back({x0, is_log ? std::exp(y0) : y0});
  }
  return out;
}

}  // namespace weft
