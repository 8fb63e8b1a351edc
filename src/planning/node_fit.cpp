// planning/node_fit.cpp: the memory check of a start, and what may be left out.
#include "planning/node_fit.h"

#include "base/error.h"
#include "config/elastic.h"
#include "planning/snapshot_bytes.h"

namespace weft {
namespace {

void leave_out(const char* key_and_value, const std::string& warning, LayoutFit* fit) {
  fit->arguments.insert(fit->arguments.end(), {"--set", key_and_value});
  fit->warning += (fit->warning.empty() ? "" : "; ") + warning;
}

}  // namespace

LayoutFit fit_nodes(const RunConfig& config, int64_t nodes, const NodeFitOptions& o) {
  const RunConfig c = with_nodes(config, nodes);
  LayoutFit fit;
  try {
    const CopiesShortage copies = check_memory(c, o.is_forced, o.measure);
    if (!copies.slots.empty() && o.needs_snapshots)
      return {.shortage = copies.slots + "; with launch.snapshot_every: auto it does without them"};
    if (!copies.async.empty() && o.needs_async)
      return {.shortage = copies.async +
                          "; without checkpoint.async in the run file it does "
                          "without it"};
    fit.has_snapshots = has_snapshot_slots(c) && copies.slots.empty();
    if (!copies.slots.empty())
      leave_out("launch.snapshot_every=0",
                copies.slots + "; where a rank dies, all start from the newest checkpoint", &fit);
    if (!copies.async.empty())
      leave_out("checkpoint.async=false", copies.async + "; checkpoints are written between steps",
                &fit);
    return fit;
  } catch (const Error& e) {
    return {.shortage = e.what()};
  }
}

}  // namespace weft
