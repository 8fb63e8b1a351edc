// cmd/plan.cpp: weft plan RUN.yaml.
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "cmd/command.h"
#include "train/plan_report.h"

namespace weft {

RunCommand add_plan(CLI::App& app) {
  struct Words {
    std::string run;
    std::vector<std::string> sets;
    bool json = false, dump = false;
  };
  auto w = std::make_shared<Words>();
  app.add_option("RUN", w->run, "run file (YAML)")->required();
  app.add_option("--set", w->sets, "section.key=value, over the run file")->take_all()->expected(1);
  app.add_flag("--json", w->json, "one JSON object");
  app.add_flag("--dump", w->dump, "every node of the step");
  return [w] {
    const RunFile file(w->run, w->sets);
    const PlanReport report = plan_run(file.config());
    if (w->dump) fmt::print("{}", report.dump);
    fmt::print("{}", w->json ? report.to_json().dump() + "\n" : report.to_text());
    return 0;
  };
}

}  // namespace weft
