// track/plot_none.cpp: a build without Cairo has no pictures, and says so.
#include "base/error.h"
#include "track/plot.h"

namespace weft {

namespace {

[[noreturn]] void refuse_picture(const std::filesystem::path& path) {
  throw UserError(fmt::format("cannot draw {}: this build has no Cairo", path.string()),
                  "build with -DWEFT_CAIRO=ON where libcairo2-dev is installed");
}

}  // namespace

bool has_pictures() { return false; }

void draw_picture(const LossCurve&, const std::filesystem::path& path) { refuse_picture(path); }

void draw_comparison(const CurveComparison&, const std::filesystem::path& path) {
  refuse_picture(path);
}

}  // namespace weft
