// cmd/diff.cpp: weft diff A B; exit 1 where anything differs.

#include "base/error.h"
#include "base/printable.h"
#include "checkpoint/compare.h"
#include "cmd/command.h"
#include "train/local_copy.h"

namespace weft {
namespace {

int run_diff(const std::string& a_path, const std::string& b_path) {
  const LocalCopy a_copy(a_path), b_copy(b_path);
  const LogicalModel a = open_logical(a_copy.path()), b = open_logical(b_copy.path());
  require_all_read(a);
  require_all_read(b);
  const Comparison result = compare_models(a, b);
  for (const TensorDifference& d : result.differences)
    fmt::print("{}\n", printable_line(to_string(d)));
  // Only one has states: two checkpoints then differ, but a folder never has states.
  const bool lacks_states = a.states.empty() != b.states.empty();
  const bool both_keep_states = a.kind == LogicalModel::Kind::kCheckpoint && b.kind == a.kind;
  if (lacks_states) {
    fmt::print("states only in {}{}\n", a.states.empty() ? "B" : "A",
               both_keep_states ? "" : ", not compared");
  }
  if (result.differences.empty() && !(lacks_states && both_keep_states)) {
    fmt::print("identical: {} tensors\n", result.num_compared);
    return 0;
  }
  fmt::print("{} tensors compared, {} differ\n", result.num_compared, result.differences.size());
  return 1;
}

}  // namespace

RunCommand add_diff(CommandOptions& app) {
  const auto paths = std::make_shared<std::array<std::string, 2>>();
  app.add_option("A", (*paths)[0], "checkpoint, run directory, folder or file")->required();
  app.add_option("B", (*paths)[1], "what to compare it with")->required();
  return [paths] { return run_diff((*paths)[0], (*paths)[1]); };
}

}  // namespace weft
