// track/plot_cairo.cpp: the curve as a picture, PNG or SVG.
#include <cairo.h>
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "track/cairo_pen.h"
#include "track/plot_scale.h"

namespace weft {
namespace {

constexpr double kWidth = 960, kHeight = 540;
constexpr double kLeft = 76, kRight = 108, kTop = 100, kBottom = 64;
constexpr Colour kLine{0.16, 0.38, 0.75}, kEval{0.87, 0.42, 0.16};

class Canvas {
 public:
  Canvas(CairoPen& pen, const LossCurve& curve)
      : pen_(pen), cr_(pen.cr()), curve_(curve), xs_(step_scale(curve)), ys_(loss_scale(curve)) {}

  void draw() {
    pen_.fill_page(kPaper);
    draw_grid();
    cairo_save(cr_);
    cairo_rectangle(cr_, kLeft, kTop - 6, kWidth - kLeft - kRight + 6,
                    kHeight - kTop - kBottom + 8);
    cairo_clip(cr_);
    const std::vector<CurvePoint> line = smooth(curve_.train, ys_.is_log());
    draw_fill(line);
    draw_line(curve_.train, kLine, 0.28, 1);
    draw_line(line, kLine, 1, 2.4);
    cairo_restore(cr_);
    draw_eval();
    draw_words(line);
  }

 private:
  double px(double x) const { return kLeft + xs_.place(x) * (kWidth - kLeft - kRight); }
  double py(double y) const {
    return kHeight - kBottom - ys_.place(y) * (kHeight - kTop - kBottom);
  }
  void set(const Colour& c, double alpha = 1) { pen_.set(c, alpha); }
  void text(double x, double y, const std::string& words, double size, const Colour& colour,
            Align align, bool is_bold = false) {
    pen_.text(x, y, words, size, colour, align, is_bold);
  }

  void draw_grid() {
    cairo_set_line_width(cr_, 1);
    for (const double tick : ys_.ticks(6)) {
      const double y = std::round(py(tick)) + 0.5;
      set(kGrid);
      cairo_move_to(cr_, kLeft, y);
      cairo_line_to(cr_, kWidth - kRight, y);
      cairo_stroke(cr_);
      text(kLeft - 10, y + 4.5, tick_label(tick), 13, kSoft, Align::kEnd);
    }
    const double base = std::round(kHeight - kBottom) + 0.5;
    set(kSoft);
    cairo_move_to(cr_, kLeft, base);
    cairo_line_to(cr_, kWidth - kRight, base);
    cairo_stroke(cr_);
    for (const double tick : xs_.ticks(8)) {
      const double x = std::round(px(tick)) + 0.5;
      set(kSoft);
      cairo_move_to(cr_, x, base);
      cairo_line_to(cr_, x, base + 5);
      cairo_stroke(cr_);
      text(x, base + 21, tick_label(tick), 13, kSoft, Align::kCentre);
    }
  }

  void draw_line(const std::vector<CurvePoint>& points, const Colour& colour, double alpha,
                 double width) {
    std::vector<std::pair<double, double>> places;
    for (const CurvePoint& p : keep_extremes(points)) places.emplace_back(px(p.x), py(p.y));
    pen_.line(places, colour, alpha, width);
  }

  // A shade under the smoothed curve, fading towards the axis.
  void draw_fill(const std::vector<CurvePoint>& points) {
    if (points.size() < 2) return;
    cairo_new_path(cr_);
    cairo_move_to(cr_, px(points.front().x), kHeight - kBottom);
    for (const CurvePoint& p : points) cairo_line_to(cr_, px(p.x), py(p.y));
    cairo_line_to(cr_, px(points.back().x), kHeight - kBottom);
    cairo_close_path(cr_);
    cairo_pattern_t* shade = cairo_pattern_create_linear(0, kTop, 0, kHeight - kBottom);
    cairo_pattern_add_color_stop_rgba(shade, 0, kLine.r, kLine.g, kLine.b, 0.14);
    cairo_pattern_add_color_stop_rgba(shade, 1, kLine.r, kLine.g, kLine.b, 0.01);
    cairo_set_source(cr_, shade);
    cairo_fill(cr_);
    cairo_pattern_destroy(shade);
  }

  void draw_eval() {
    draw_line(curve_.eval, kEval, 0.5, 1.4);
    for (const CurvePoint& p : keep_extremes(curve_.eval)) pen_.dot(px(p.x), py(p.y), 4.2, kEval);
  }

  void draw_words(const std::vector<CurvePoint>& line) {
    text(kLeft, 38, curve_.title, 20, kInk, Align::kBegin, true);
    double x = kLeft;
    auto legend = [&](const char* words, const Colour& colour, double alpha, double width) {
      pen_.line({{x, 57.5}, {x + 20, 57.5}}, colour, alpha, width);
      text(x + 27, 62, words, 13, kSoft, Align::kBegin);
      x += 27 + pen_.text_width(words, 13) + 24;
    };
    legend("training loss", kLine, 0.35, 1.5);
    legend("smoothed", kLine, 1, 2.6);
    if (!curve_.eval.empty()) {
      pen_.dot(x + 10, 57.5, 4.2, kEval);
      legend("evaluation", kEval, 0, 1);
    }
    text((kLeft + kWidth - kRight) / 2, kHeight - 16, "step", 14, kSoft, Align::kCentre);
    text(kLeft - 10, kTop - 14, ys_.is_log() ? "loss (log)" : "loss", 13, kSoft, Align::kEnd);
    draw_ends(line);
  }

  // The last values, next to the ends of their curves, without overlap.
  void draw_ends(const std::vector<CurvePoint>& line) {
    double taken = -100;
    if (!line.empty()) {
      const CurvePoint& end = line.back();
      pen_.dot(px(end.x), py(end.y), 4.2, kLine);
      taken = py(end.y);
      text(px(end.x) + 14, taken + 5, fmt::format("{:.3g}", end.y), 15, kLine, Align::kBegin, true);
    }
    if (curve_.eval.empty()) return;
    const CurvePoint& end = curve_.eval.back();
    double y = py(end.y);
    if (std::abs(y - taken) < 18) y = y <= taken ? taken - 18 : taken + 18;
    text(px(end.x) + 14, y + 5, fmt::format("{:.3g}", end.y), 15, kEval, Align::kBegin, true);
  }

  CairoPen& pen_;
  cairo_t* cr_;
  const LossCurve& curve_;
  Scale xs_, ys_;
};

}  // namespace

bool has_pictures() { return true; }

void draw_picture(const LossCurve& curve, const std::filesystem::path& path) {
  make_picture(path, kWidth, kHeight, [&](CairoPen& pen) { Canvas(pen, curve).draw(); });
}

}  // namespace weft
