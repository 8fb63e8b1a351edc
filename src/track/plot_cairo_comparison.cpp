// track/plot_cairo_comparison.cpp: losses of several runs above, their differences below.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "track/cairo_pen.h"
#include "track/plot_scale.h"

namespace weft {
namespace {

constexpr double kWidth = 960, kLeft = 84, kRight = 28;
constexpr double kUpperHeight = 300, kLowerHeight = 220, kGap = 56, kFoot = 56;
constexpr double kLegendTop = 62, kLegendLine = 20;
constexpr double kZeroRoom = 22;  // below the logarithmic axis, for differences of 0
constexpr Colour kColours[] = {{0.16, 0.38, 0.75}, {0.87, 0.42, 0.16}, {0.18, 0.58, 0.34},
                               {0.65, 0.27, 0.62}, {0.78, 0.60, 0.10}, {0.13, 0.60, 0.67},
                               {0.77, 0.22, 0.30}, {0.42, 0.36, 0.30}};

const Colour& colour_of(size_t i) { return kColours[i % std::size(kColours)]; }

struct Panel {
  double top, height;
  double bottom() const { return top + height; }
};

class Canvas {
 public:
  Canvas(CairoPen& pen, const CurveComparison& c, double legend_height)
      : pen_(pen),
        c_(c),
        xs_(step_scale(all_losses(c))),
        upper_{kLegendTop + legend_height + 24, kUpperHeight},
        lower_{upper_.bottom() + kGap, kLowerHeight} {}

  void draw() {
    pen_.fill_page(kPaper);
    pen_.text(kLeft, 38, c_.title, 20, kInk, Align::kBegin, true);
    draw_legend();
    draw_losses();
    draw_differences();
  }

  static LossCurve all_losses(const CurveComparison& c) {
    LossCurve all;
    for (const ComparedCurve& curve : c.curves) {
      all.train.insert(all.train.end(), curve.loss.begin(), curve.loss.end());
    }
    return all;
  }

 private:
  double px(double x) const { return kLeft + xs_.place(x) * (kWidth - kLeft - kRight); }

  void draw_legend() {
    double y = kLegendTop;
    for (size_t i = 0; i < c_.curves.size(); ++i, y += kLegendLine) {
      pen_.line({{kLeft, y - 4.5}, {kLeft + 22, y - 4.5}}, colour_of(i), i == 0 ? 0.4 : 1,
                i == 0 ? 6 : 1.8);
      pen_.text(kLeft + 32, y, c_.curves[i].name + (i == 0 ? " (the base)" : ""), 13, kSoft,
                Align::kBegin);
    }
  }

  void draw_grid(const Panel& panel, const Scale& ys, double room, const char* words) {
    for (const double tick : ys.ticks(5)) {
      const double y = std::round(panel.bottom() - room - ys.place(tick) * (panel.height - room));
      pen_.line({{kLeft, y + 0.5}, {kWidth - kRight, y + 0.5}}, kGrid, 1, 1);
      pen_.text(kLeft - 10, y + 5, tick_label(tick), 13, kSoft, Align::kEnd);
    }
    const double base = std::round(panel.bottom()) + 0.5;
    pen_.line({{kLeft, base}, {kWidth - kRight, base}}, kSoft, 1, 1);
    for (const double tick : xs_.ticks(8)) {
      pen_.line({{px(tick), base}, {px(tick), base + 5}}, kSoft, 1, 1);
      pen_.text(px(tick), base + 20, tick_label(tick), 13, kSoft, Align::kCentre);
    }
    pen_.text(kLeft, panel.top - 12, words, 13, kSoft, Align::kBegin);
  }

  void draw_losses() {
    const Scale ys = loss_scale(all_losses(c_));
    draw_grid(upper_, ys, 0, ys.is_log() ? "loss (log)" : "loss");
    for (size_t i = 0; i < c_.curves.size(); ++i) {
      std::vector<std::pair<double, double>> places;
      for (const CurvePoint& p : keep_extremes(c_.curves[i].loss)) {
        places.emplace_back(px(p.x), upper_.bottom() - ys.place(p.y) * upper_.height);
      }
      // The base is drawn wide and pale below the others: equal curves can still be distinguished.
      pen_.line(places, colour_of(i), i == 0 ? 0.4 : 1, i == 0 ? 6 : 1.6);
    }
  }

  // From a decade below the smallest difference or bar to one above the largest.
  Scale difference_scale() const {
    double low = 1e300, high = 0;
    const auto take = [&](double v) {
      if (!(v > 0) || !std::isfinite(v)) return;
      low = std::min(low, v);
      high = std::max(high, v);
    };
    for (const ComparedCurve& curve : c_.curves) {
      for (const CurvePoint& p : curve.difference) take(p.y);
    }
    for (const auto& [name, bar] : c_.bars) take(bar);
    if (high == 0) return {1e-9, 1e-5, true};  // nothing differs, and nothing may
    return {std::pow(10, std::floor(std::log10(low))),
            std::pow(10, std::ceil(std::log10(high) + 0.1)), true};
  }

  void draw_differences() {
    const Scale ys = difference_scale();
    draw_grid(lower_, ys, kZeroRoom, "difference from the base (log; bottom: none)");
    pen_.text(kLeft - 10, lower_.bottom() + 5, "0", 13, kSoft, Align::kEnd);
    const auto py = [&](double y) {
      const double foot = lower_.bottom();
      if (!(y > 0)) return foot;
      return foot - kZeroRoom - std::clamp(ys.place(y), 0.0, 1.0) * (lower_.height - kZeroRoom);
    };
    for (const auto& [name, bar] : c_.bars) {
      if (!(bar > 0)) continue;
      pen_.line({{kLeft, py(bar)}, {kWidth - kRight, py(bar)}}, kInk, 0.7, 1.2, 5);
      pen_.text(kWidth - kRight, py(bar) - 5, name, 12, kInk, Align::kEnd);
    }
    for (size_t i = 0; i < c_.curves.size(); ++i) {
      std::vector<std::pair<double, double>> places;
      for (const CurvePoint& p : keep_extremes(c_.curves[i].difference))
        places.emplace_back(px(p.x), py(p.y));
      pen_.line(places, colour_of(i), 0.9, 1.6);
    }
    pen_.text((kLeft + kWidth - kRight) / 2, lower_.bottom() + 44, "step", 14, kSoft,
              Align::kCentre);
  }

  CairoPen& pen_;
  const CurveComparison& c_;
  Scale xs_;
  Panel upper_, lower_;
};

}  // namespace

void draw_comparison(const CurveComparison& c, const std::filesystem::path& path) {
  const double legend = kLegendLine * static_cast<double>(c.curves.size());
  const double height = kLegendTop + legend + 24 + kUpperHeight + kGap + kLowerHeight + kFoot;
  make_picture(path, kWidth, height, [&](CairoPen& pen) { Canvas(pen, c, legend).draw(); });
}

}  // namespace weft
