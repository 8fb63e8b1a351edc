// track/cairo_pen.cpp: calls into Cairo, with its errors as exceptions.
#include "track/cairo_pen.h"

#include <cairo-svg.h>
#include <cairo.h>
#include <fmt/core.h>

#include <memory>

#include "base/error.h"

namespace weft {
namespace {

constexpr double kPngScale = 2;
constexpr double kTurn = 2 * 3.14159265358979323846;
constexpr const char* kFont = "DejaVu Sans";

void check(cairo_status_t status, const std::filesystem::path& path) {
  if (status == CAIRO_STATUS_SUCCESS) return;
  throw RunError(fmt::format("cannot draw {}: cairo reports {}", path.string(),
                             cairo_status_to_string(status)));
}

struct SurfaceEnd {
  void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
};
struct ContextEnd {
  void operator()(cairo_t* cr) const { cairo_destroy(cr); }
};

}  // namespace

void CairoPen::set(const Colour& c, double alpha) {
  cairo_set_source_rgba(cr_, c.r, c.g, c.b, alpha);
}

void CairoPen::fill_page(const Colour& colour) {
  set(colour);
  cairo_paint(cr_);
}

void CairoPen::text(double x, double y, const std::string& words, double size, const Colour& colour,
                    Align align, bool is_bold) {
  cairo_select_font_face(cr_, kFont, CAIRO_FONT_SLANT_NORMAL,
                         is_bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  const double width = text_width(words, size);
  if (align == Align::kCentre) x -= width / 2;
  if (align == Align::kEnd) x -= width;
  set(colour);
  cairo_move_to(cr_, x, y);
  cairo_show_text(cr_, words.c_str());
}

double CairoPen::text_width(const std::string& words, double size) {
  cairo_set_font_size(cr_, size);
  cairo_text_extents_t extents;
  cairo_text_extents(cr_, words.c_str(), &extents);
  return extents.x_advance;
}

void CairoPen::line(const std::vector<std::pair<double, double>>& points, const Colour& colour,
                    double alpha, double width, double dash) {
  cairo_new_path(cr_);
  for (const auto& [x, y] : points) cairo_line_to(cr_, x, y);
  set(colour, alpha);
  cairo_set_line_width(cr_, width);
  cairo_set_line_join(cr_, CAIRO_LINE_JOIN_ROUND);
  cairo_set_line_cap(cr_, CAIRO_LINE_CAP_ROUND);
  if (dash > 0) cairo_set_dash(cr_, &dash, 1, 0);
  cairo_stroke(cr_);
  cairo_set_dash(cr_, nullptr, 0, 0);
}

void CairoPen::dot(double x, double y, double radius, const Colour& colour) {
  cairo_new_path(cr_);
  cairo_arc(cr_, x, y, radius + 1.6, 0, kTurn);
  set(kPaper);
  cairo_fill(cr_);
  cairo_arc(cr_, x, y, radius, 0, kTurn);
  set(colour);
  cairo_fill(cr_);
}

void make_picture(const std::filesystem::path& path, double width, double height,
                  const std::function<void(CairoPen&)>& draw) {
  const bool is_svg = path.extension() == ".svg";
  require(is_svg || path.extension() == ".png", "a picture is .png or .svg, got {}", path.string());
  const double scale = is_svg ? 1 : kPngScale;
  std::unique_ptr<cairo_surface_t, SurfaceEnd> surface(
      is_svg ? cairo_svg_surface_create(path.c_str(), width, height)
             : cairo_image_surface_create(CAIRO_FORMAT_RGB24, static_cast<int>(width * scale),
                                          static_cast<int>(height * scale)));
  check(cairo_surface_status(surface.get()), path);
  {
    std::unique_ptr<cairo_t, ContextEnd> cr(cairo_create(surface.get()));
    cairo_scale(cr.get(), scale, scale);
    CairoPen pen(cr.get());
    draw(pen);
  }
  if (!is_svg) check(cairo_surface_write_to_png(surface.get(), path.c_str()), path);
  cairo_surface_finish(surface.get());
  check(cairo_surface_status(surface.get()), path);
}

}  // namespace weft
