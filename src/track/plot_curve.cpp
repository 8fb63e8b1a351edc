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

std::vector<CurvePoint> smooth(const std::vector<CurvePoint>& points) {
  const int64_t n = static_cast<int64_t>(points.size());
  const int64_t reach = std::max<int64_t>(1, n / 50);
  std::vector<CurvePoint> out;
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0, weights = 0;
    const int64_t near = std::min({reach, i, n - 1 - i});  // as far to both sides: no lag
    for (int64_t d = -near; d <= near; ++d) {
      const double weight = static_cast<double>(reach + 1 - std::abs(d));
      sum += weight * points[static_cast<size_t>(i + d)].y;
      weights += weight;
    }
    out.push_back({points[static_cast<size_t>(i)].x, sum / weights});
  }
  return out;
}

}  // namespace weft
