// cmd/train.cpp: weft train.
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/log.h"
#include "cmd/command.h"
#include "train/trainer.h"

namespace weft {

RunCommand add_train(CLI::App& app) {
  struct Words {
    std::string run, engine = "local";
    std::vector<std::string> sets;
    int64_t nodes = 1;
    TrainOptions options;
  };
  auto w = std::make_shared<Words>();
  app.add_option("RUN", w->run, "run file (YAML)")->required();
  app.add_option("--set", w->sets, "section.key=value, over the run file")->take_all()->expected(1);
  app.add_option("--run-dir", w->options.run_dir, "instead of <storage>/<name>");
  app.add_option("--resume", w->options.resume, "auto | never | CHECKPOINT");
  app.add_flag("--overwrite", w->options.overwrite, "give up what the run directory holds");
  app.add_option("--engine", w->engine, "local (ray and slurm are not built)");
  app.add_option("--nodes", w->nodes, "machines (more than one is not built)");
  app.add_flag("--quiet", w->options.quiet, "errors only");
  return [w] {
    require(w->engine == "local", "--engine {} is not built; known: local", w->engine);
    require(w->nodes == 1, "--nodes {}: more than one node is not built", w->nodes);
    set_log_quiet(w->options.quiet);
    const RunFile file(w->run, w->sets);
    return train(file, w->options);
  };
}

}  // namespace weft
