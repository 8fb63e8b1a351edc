// planning/node_fit.cpp: the memory check of a start, and what may be left out.
#include "planning/node_fit.h"

#include "base/error.h"
#include "config/elastic.h"
#include "planning/memory_check.h"
#include "planning/snapshot_bytes.h"

namespace weft {

LayoutFit fit_nodes(const RunConfig& config, int64_t nodes, const NodeFitOptions& o) {
  RunConfig c = with_nodes(config, nodes);
  LayoutFit fit;
  try {
    std::string shortage = check_memory(c, o.is_forced);
    if (!shortage.empty() && has_snapshot_slots(c)) {
      c.launch.snapshot_every = "0";
      fit.arguments = {"--set", "launch.snapshot_every=0"};
      shortage = check_memory(c, o.is_forced);
    }
    if (shortage.empty() || !c.checkpoint.async) return fit;
    if (o.needs_async) return {shortage, {}};
    fit.arguments.insert(fit.arguments.end(), {"--set", "checkpoint.async=false"});
    return fit;
  } catch (const Error& e) {
    return {e.what(), {}};
  }
}

}  // namespace weft
