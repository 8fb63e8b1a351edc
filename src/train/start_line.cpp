// train/start_line.cpp: one line of facts.
#include "train/start_line.h"

#include <fmt/core.h>

#include "track/progress.h"

namespace weft {

std::string start_line(const RunConfig& config, const Model& model, const Layout& layout,
                       Engine* engine, const Device& device) {
  const int threads = engine->pool()->num_threads();
  std::string line = fmt::format(
      "{} parameters, {}, {} of memory, {} thread{}, kernels {}{}",
      format_count(static_cast<double>(count_parameters(model))), describe(layout),
      format_bytes(engine->arena_bytes()), threads, threads == 1 ? "" : "s",
      engine->plans().train.options.kernels->name, device.is_host() ? "" : " on " + device.name());
  if (model.dropout() > 0) line += fmt::format(", dropout {}", model.dropout());
  if (config.scales_loss())
    line += fmt::format(", fp16 with loss scale {}",
                        static_cast<double>(engine->loss_scale().scale));  // all of its digits
  return line;
}

}  // namespace weft
