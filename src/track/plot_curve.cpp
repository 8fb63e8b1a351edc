// track/plot_curve.cpp: the points of a run, and their smoothing.
#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "track/plot.h"

namespace weft {

LossCurve read_loss_curve(const std::filesystem::path& metrics, const std::string& title) {
  LossCurve curve;
  curve.title = title;
  const std::string text = read_file(metrics);
  for (size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const Json line = parse_json(std::string_view(text).substr(at, end - at), metrics.string());
    const Json* step = line.find("step");
    const Json* loss = line.find("loss");
    const Json* eval = line.find("eval_loss");
    if (!step) continue;
    const double x = step->as_number();
    if (loss && loss->is_number()) curve.train.push_back({x, loss->as_number()});
    if (eval && eval->is_number()) curve.eval.push_back({x, eval->as_number()});
  }
  return curve;
}

// A straight line is fitted to the neighbours of each point (local regression): at the ends, where
// there are neighbours on one side only, an average would lag.
std::vector<CurvePoint> smooth(const std::vector<CurvePoint>& points, bool is_log) {
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
