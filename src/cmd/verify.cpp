// cmd/verify.cpp: weft verify RUN.yaml --layouts "..."; exit 1 where a tolerance is exceeded.
#include "verify/verify.h"

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "cmd/command.h"

namespace weft {

RunCommand add_verify(CommandOptions& app) {
  struct Words {
    VerifyOptions options;
    bool json = false;
  };
  auto w = std::make_shared<Words>();
  VerifyOptions& o = w->options;
  app.add_option("RUN", o.run, "run file (YAML)")->required();
  app.add_option("--layouts", o.layouts,
                 "\"dp=2; dp=2,shard=zero3; tp=2\": the first is the base; keys dp, tp, shard, "
                 "mode, exact_tp, exact_dp, exact_rows, micro_batch, recompute, threads")
      ->required();
  app.add_option("--steps", o.steps, "instead of the run file's")->check(at_least(1), "N");
  app.add_option("--out", o.out, "folder for runs and results; default: <storage>/<name>-verify");
  app.add_option("--max-diff", o.max_diff,
                 "largest difference of a loss; default: 1e-5 in fp32, 5e-3 in bf16")
      ->check(not_negative(), "X");
  app.add_option("--mean-diff", o.mean_diff, "mean difference of the losses; default: 1e-3 in bf16")
      ->check(not_negative(), "X");
  app.add_option("--set", o.sets, "section.key=value, overrides the run file")
      ->take_all()
      ->expected(1);
  app.add_flag("--json", w->json, "one JSON object");
  return [w] {
    set_log_quiet(w->json);
    const VerifyReport report = verify(w->options);
    if (report.stop_signal != 0) return 128 + report.stop_signal;
    fmt::print("{}", w->json ? printable_json(report.to_json().dump()) + "\n"
                             : printable(report.to_text()));
    return report.ok() ? 0 : 1;
  };
}

}  // namespace weft
