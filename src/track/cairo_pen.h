// track/cairo_pen.h: draws pictures: lines, dots and text in one style.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

struct _cairo;  // cairo's name for cairo_t

namespace weft {

struct Colour {
  double r, g, b;
};
inline constexpr Colour kInk{0.13, 0.15, 0.19}, kSoft{0.44, 0.47, 0.53}, kGrid{0.90, 0.91, 0.93};
inline constexpr Colour kPaper{1, 1, 1};

enum class Align { kBegin, kCentre, kEnd };

class CairoPen {
 public:
  explicit CairoPen(_cairo* cr) : cr_(cr) {}
  _cairo* cr() const { return cr_; }

  void set(const Colour& colour, double alpha = 1);
  void fill_page(const Colour& colour);
  void text(double x, double y, const std::string& words, double size, const Colour& colour,
            Align align, bool is_bold = false);
  double text_width(const std::string& words, double size);
  // Through all points; dash 0: without gaps.
  void line(const std::vector<std::pair<double, double>>& points, const Colour& colour,
            double alpha, double width, double dash = 0);
  void dot(double x, double y, double radius, const Colour& colour);  // with a white rim

 private:
  _cairo* cr_;
};

// A picture of that size, PNG (two pixels per unit, sharp on dense screens) or SVG by the
// extension.
void make_picture(const std::filesystem::path& path, double width, double height,
                  const std::function<void(CairoPen&)>& draw);

}  // namespace weft
