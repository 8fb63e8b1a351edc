// track/plot.h: the loss curve, in the terminal and as a picture.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace weft {

struct CurvePoint {
  double x = 0;  // step
  double y = 0;  // loss
};

struct LossCurve {
  std::string title;
  std::vector<CurvePoint> train;
  std::vector<CurvePoint> eval;
};

// From metrics.jsonl; steps without a loss are left out.
LossCurve read_loss_curve(const std::filesystem::path& metrics, const std::string& title);

// At most 2,000 points: all of them, or the lowest and the highest of each group of neighbours,
// with the first and the last point of the curve.
std::vector<CurvePoint> keep_extremes(const std::vector<CurvePoint>& points);

// A local average over a fortieth of the curve to both sides, weighted towards nearer points; of
// the logarithms on a log axis, so that one high loss makes no hill. A longer curve is first
// reduced to 2,000 means of neighbours.
std::vector<CurvePoint> smooth(const std::vector<CurvePoint>& points, bool is_log);

// Braille characters with axes, about this many characters wide and high; ends with a newline.
std::string draw_terminal(const LossCurve& curve, int columns = 72, int rows = 16);

// PNG or SVG by the extension. RunError where it cannot be written, UserError where this build has
// no Cairo.
void draw_picture(const LossCurve& curve, const std::filesystem::path& path);
bool has_pictures();

// Several runs of one training: their losses, and how far each is from the first.
struct ComparedCurve {
  std::string name;
  std::vector<CurvePoint> loss;
  std::vector<CurvePoint> difference;  // absolute, from the first curve; empty for the first
};
struct CurveComparison {
  std::string title;
  std::vector<ComparedCurve> curves;
  std::vector<std::pair<std::string, double>> bars;  // limits that differences must not exceed
};

// As draw_picture: the curves above, the differences below, on a logarithmic axis with 0 at the
// bottom.
void draw_comparison(const CurveComparison& comparison, const std::filesystem::path& path);

}  // namespace weft
