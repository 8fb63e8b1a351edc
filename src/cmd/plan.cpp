// cmd/plan.cpp: weft plan RUN.yaml.

#include "base/byte_size.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/path.h"
#include "base/printable.h"
#include "cmd/command.h"
#include "planning/backend.h"
#include "planning/cluster_report.h"
#include "planning/plan_fit.h"
#include "planning/plan_report.h"
#include "planning/precision.h"

namespace weft {
namespace {

struct PlanWords {
  std::string run, fit;
  std::filesystem::path out, cluster;
  std::vector<std::string> sets;
  int64_t ranks = 0;
  bool json = false, dump = false;
};

int64_t fit_bytes(const std::string& text) {
  const auto bytes = static_cast<int64_t>(parse_byte_size(text, "--fit"));
  // 16 bytes are never meant; a seven-digit number is not in GiB.
  if (text.find_first_not_of("0123456789.") == std::string::npos) {
    throw UserError(fmt::format("--fit {}: wanted a size with its unit", text),
                    fmt::format("--fit {}{}?", text, bytes < 1'000'000 ? "GiB" : "B"));
  }
  return bytes;
}

// In addition to the report, which lists the keys without effect.
void report_cpu(const RunConfig& c) {
  if (uses_gpus(c)) return;
  if (const std::string why = cpu_line(c, find_gpus()); !why.empty()) log_info("{}", why);
  if (const std::string why = why_no_ipc_here(false); !why.empty()) log_warning("{}", why);
}

// Before anything is planned and printed.
void check_picture(const std::filesystem::path& out) {
  if (out.extension() != ".svg") {
    std::filesystem::path drawn = out;
    drawn.replace_extension(".svg");
    throw UserError(fmt::format("--out {}: only .svg is drawn", out.string()),
                    fmt::format("--out {}", drawn.string()));
  }
  const std::filesystem::path folder = out.has_parent_path() ? out.parent_path() : ".";
  if (path_kind(folder) == PathKind::kFolder) return;
  throw UserError(fmt::format("--out {}: there is no folder {}", out.string(), folder.string()),
                  fmt::format("make it (mkdir -p {}), or name another file", folder.string()));
}

// The cluster's devices compute, whatever this machine has.
int print_cluster(RunFile* file, const PlanWords& w) {
  const Cluster cluster = read_cluster(w.cluster);
  if (file->config().train.precision == "auto")
    file->choose_precision(cluster.has_gpus() ? "bf16" : "fp32");
  const ClusterReport report = plan_cluster(file->config(), cluster);
  fmt::print("{}",
             w.json ? printable_json(report.to_json().dump()) + "\n" : printable(report.to_text()));
  return 0;
}

// 1 where no layout fits: the requested check failed.
int print_fit(const RunConfig& c, const PlanWords& w) {
  const int64_t ranks = w.ranks > 0 ? w.ranks : c.parallel.dp * c.parallel.tp;
  const FitReport report = fit_layouts(c, fit_bytes(w.fit), ranks);
  report_cpu(c);
  fmt::print("{}",
             w.json ? printable_json(report.to_json().dump()) + "\n" : printable(report.to_text()));
  return report.has_fit() ? 0 : 1;
}

}  // namespace

RunCommand add_plan(CommandOptions& app) {
  auto w = std::make_shared<PlanWords>();
  app.add_option("RUN", w->run, "run file (YAML)")->required();
  app.add_option("--set", w->sets, "section.key=value, overrides the run file")
      ->take_all()
      ->expected(1);
  auto* json = app.add_flag("--json", w->json, "one JSON object");
  auto* dump = app.add_flag("--dump", w->dump, "every node of the step");
  auto* fit = app.add_option(
      "--fit", w->fit,
      "memory per rank (16GB; for a GPU that ranks share: all of it): which layouts fit");
  app.add_option("--ranks", w->ranks, "with --fit: how many ranks (default: dp x tp)")
      ->check(at_least(1, 1 << 20), "N")
      ->needs(fit);
  app.add_option("--out", w->out, "with --dump: plot of memory over the step (FILE.svg)")
      ->needs(dump);
  auto* cluster =
      app.add_option("--cluster", w->cluster,
                     "cluster file (YAML): expected step, MFU, goodput of the run there")
          ->excludes(fit)
          ->excludes(dump);
  json->excludes(dump);
  fit->excludes(dump);
  return [w, fit, cluster] {
    RunFile file(w->run, w->sets);
    file.log_replaced();
    if (cluster->count() > 0) return print_cluster(&file, *w);
    if (const std::string line = choose_precision(&file); !line.empty()) log_info("{}", line);
    if (fit->count() > 0) return print_fit(file.config(), *w);
    if (!w->out.empty()) check_picture(w->out);
    const PlanReport report = plan_run(file.config(), w->dump);
    report_cpu(file.config());
    if (w->dump) fmt::print("{}", printable(report.dump));
    if (!w->out.empty()) write_file_atomic(w->out, report.picture);
    fmt::print("{}", w->json ? printable_json(report.to_json().dump()) + "\n"
                             : printable(report.to_text()));
    return 0;
  };
}

}  // namespace weft
