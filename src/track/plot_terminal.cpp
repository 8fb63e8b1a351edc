// track/plot_terminal.cpp: the curve in braille characters: each holds 2 x 4 dots.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "track/plot_scale.h"

namespace weft {
namespace {

constexpr int kLabelColumns = 8;

class DotGrid {
 public:
  DotGrid(int columns, int rows)
      : columns_(columns), rows_(rows), cells_(static_cast<size_t>(columns * rows)) {}

  int width() const { return columns_ * 2; }
  int height() const { return rows_ * 4; }

  void set(int x, int y) {  // y from the top
    if (x < 0 || y < 0 || x >= width() || y >= height()) return;
    constexpr int kBits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    cell(x / 2, y / 4).dots |= kBits[y % 4][x % 2];
  }

  void line(int x0, int y0, int x1, int y1) {
    const int steps = std::max({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int i = 0; i <= steps; ++i) set(x0 + (x1 - x0) * i / steps, y0 + (y1 - y0) * i / steps);
  }

  void mark(int x, int y, const char* sign) {
    if (x >= 0 && y >= 0 && x < width() && y < height()) cell(x / 2, y / 4).sign = sign;
  }

  std::string row(int r) const {
    std::string out;
    for (int c = 0; c < columns_; ++c) {
      const Cell& at = cells_[static_cast<size_t>(r * columns_ + c)];
      if (at.sign) {
        out += at.sign;
      } else if (at.dots == 0) {
        out += ' ';
      } else {  // U+2800 + dots, as UTF-8
        out += '\xE2';
        out += static_cast<char>(0xA0 + (at.dots >> 6));
        out += static_cast<char>(0x80 + (at.dots & 0x3F));
      }
    }
    return out.substr(0, out.find_last_not_of(' ') + 1);
  }

 private:
  struct Cell {
    int dots = 0;
    const char* sign = nullptr;
  };
  Cell& cell(int c, int r) { return cells_[static_cast<size_t>(r * columns_ + c)]; }
  int columns_, rows_;
  std::vector<Cell> cells_;
};

int to_dot(double place, int size) { return static_cast<int>(std::lround(place * (size - 1))); }

// Axis labels under the plot, each centred on its tick where there is space.
std::string step_labels(const Scale& scale, int columns) {
  std::string out(static_cast<size_t>(columns + 6), ' ');
  size_t free_from = 0;
  for (const double tick : scale.ticks(6)) {
    const std::string label = tick_label(tick);
    const int centre = to_dot(scale.place(tick), columns);
    const size_t at = static_cast<size_t>(std::max(0, centre - static_cast<int>(label.size()) / 2));
    if (at < free_from || at + label.size() > out.size()) continue;
    out.replace(at, label.size(), label);
    free_from = at + label.size() + 2;
  }
  return out.substr(0, out.find_last_not_of(' ') + 1);
}

}  // namespace

std::string draw_terminal(const LossCurve& curve, int columns, int rows) {
  if (curve.train.empty() && curve.eval.empty()) return "(no losses to draw)\n";
  const int plot_columns = std::max(10, columns - kLabelColumns - 1);
  const int plot_rows = std::max(4, rows);
  const Scale xs = step_scale(curve), ys = loss_scale(curve);
  DotGrid grid(plot_columns, plot_rows);
  auto dot_x = [&](double x) { return to_dot(xs.place(x), grid.width()); };
  auto dot_y = [&](double y) { return grid.height() - 1 - to_dot(ys.place(y), grid.height()); };

  const std::vector<CurvePoint> line = smooth(curve.train, ys.is_log());
  for (size_t i = 0; i < line.size(); ++i) {
    const CurvePoint& from = line[i > 0 ? i - 1 : 0];
    grid.line(dot_x(from.x), dot_y(from.y), dot_x(line[i].x), dot_y(line[i].y));
  }
  for (const CurvePoint& p : curve.eval) grid.mark(dot_x(p.x), dot_y(p.y), "●");

  std::vector<std::string> labels(static_cast<size_t>(plot_rows));
  for (const double tick : ys.ticks(5)) {
    const int row = dot_y(tick) / 4;
    if (row >= 0 && row < plot_rows) labels[static_cast<size_t>(row)] = tick_label(tick);
  }
  std::string out = fmt::format("{:>{}}  {}\n", "loss", kLabelColumns - 1, curve.title);
  for (int r = 0; r < plot_rows; ++r) {
    const std::string& label = labels[static_cast<size_t>(r)];
    out += fmt::format("{:>{}} {}{}\n", label, kLabelColumns - 1, label.empty() ? "│" : "┤",
                       grid.row(r));
  }
  out += fmt::format("{:>{}}", "└", kLabelColumns + 1);
  for (int c = 0; c < plot_columns; ++c) out += "─";
  out += fmt::format("\n{:{}}{}  step", "", kLabelColumns + 1, step_labels(xs, plot_columns));
  if (!curve.eval.empty()) out += "   ● eval";
  out += '\n';
  return out;
}

}  // namespace weft
