// cmd/plot.cpp: weft plot RUN_DIR.
#include "track/plot.h"

#include "base/error.h"
#include "base/printable.h"
#include "cmd/command.h"
#include "train/local_copy.h"

namespace weft {

RunCommand add_plot(CommandOptions& app) {
  struct Words {
    std::filesystem::path dir, out;
  };
  auto w = std::make_shared<Words>();
  app.add_option("RUN_DIR", w->dir, "run directory")->required();
  app.add_option("--out", w->out, "picture to write (.png or .svg); default: terminal only");
  return [w] {
    const LocalCopy copy(w->dir.string(), LocalCopy::Part::kRecords);
    const std::filesystem::path dir = copy.path(), metrics = dir / "metrics.jsonl";
    require(std::filesystem::exists(metrics), "{} has no metrics.jsonl", w->dir.string());
    const auto name = std::filesystem::weakly_canonical(dir).filename().string();
    const LossCurve curve = read_loss_curve(metrics, name);
    require(!curve.train.empty(), "{} contains no loss yet", metrics.string());
    fmt::print("{}", printable(draw_terminal(curve)));
    if (!w->out.empty()) draw_picture(curve, w->out);
    return 0;
  };
}

}  // namespace weft
