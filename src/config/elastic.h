// config/elastic.h: the layouts in which an elastic run may continue (docs/design/0022-elastic.md).
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"

namespace weft {

struct ElasticLayout {
  int64_t nodes = 1, dp = 1;
};

// The run on another number of nodes: ranks per node, tp and the global batch stay. It has a
// supervisor also where a single rank is left, as an elastic run has.
RunConfig with_nodes(const RunConfig& config, int64_t nodes);

// Those that the run file would be accepted with, launch.nodes and fewer, the largest first.
// Without launch.elastic: only the run file's own.
std::vector<ElasticLayout> elastic_layouts(const RunConfig& config);

// Those in which any run may save what its nodes have in memory, without training: likewise, and
// also without launch.elastic and below launch.min_nodes.
std::vector<ElasticLayout> saving_layouts(const RunConfig& config);

// launch.elastic without anything it could change.
void check_elastic(const RunConfig& config, std::vector<std::string>* complaints);

}  // namespace weft
