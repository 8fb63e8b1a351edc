// config/elastic.cpp: fewer nodes, checked as the run file is.
#include "config/elastic.h"

#include <fmt/core.h>

#include <algorithm>

namespace weft {

RunConfig with_nodes(const RunConfig& c, int64_t nodes) {
  RunConfig changed = c;
  changed.parallel.dp = nodes * c.ranks_per_node() / c.parallel.tp;
  changed.launch.nodes = nodes;
  changed.launch.elastic = true;
  return changed;
}

std::vector<ElasticLayout> elastic_layouts(const RunConfig& c) {
  std::vector<ElasticLayout> layouts = {{c.launch.nodes, c.parallel.dp}};
  if (!c.launch.elastic) return layouts;
  const int64_t fewest = std::max<int64_t>(c.launch.min_nodes, 1);
  for (int64_t nodes = c.launch.nodes - 1; nodes >= fewest; --nodes) {
    const RunConfig smaller = with_nodes(c, nodes);
    if (c.train.global_batch % smaller.parallel.dp != 0) continue;  // without the words for it
    std::vector<std::string> complaints;
    check_batch(smaller, &complaints);
    if (complaints.empty()) layouts.push_back({nodes, smaller.parallel.dp});
  }
  return layouts;
}

std::vector<ElasticLayout> saving_layouts(const RunConfig& c) {
  RunConfig any = c;
  any.launch.elastic = true;
  any.launch.min_nodes = 0;
  return elastic_layouts(any);
}

void check_elastic(const RunConfig& c, std::vector<std::string>* complaints) {
  if (!c.launch.elastic) {
    if (c.launch.min_nodes > 0)
      complaints->push_back(fmt::format(
          "launch.min_nodes is {}, but without launch.elastic a run needs all its nodes: set "
          "launch.elastic to true, or leave min_nodes out",
          c.launch.min_nodes));
    return;
  }
  const int64_t ranks = c.parallel.dp * c.parallel.tp;
  if (c.launch.nodes > 1 &&
      (ranks % c.launch.nodes != 0 || c.ranks_per_node() % c.parallel.tp != 0))
    return;  // reported with launch.nodes
  if (c.launch.nodes == 1) {
    complaints->push_back(
        "launch.elastic is true, but launch.nodes is 1: it lets a run on several nodes continue "
        "with fewer; on one machine dead ranks are replaced anyway; leave it out, or set "
        "launch.nodes");
  } else if (c.launch.min_nodes >= c.launch.nodes) {
    complaints->push_back(
        fmt::format("launch.min_nodes is {}, which is not below launch.nodes ({}): the run could "
                    "never continue with fewer nodes; lower it, or leave launch.elastic out",
                    c.launch.min_nodes, c.launch.nodes));
  } else if (c.train.grad_accum != 0) {
    complaints->push_back(
        fmt::format("launch.elastic changes dp, and with it the passes per step, but "
                    "train.grad_accum is {}: leave it at 0",
                    c.train.grad_accum));
  } else if (elastic_layouts(c).size() == 1) {
    complaints->push_back(fmt::format(
        "launch.elastic is true, but with fewer than {} nodes of {} ranks{} no dp is possible: "
        "train.global_batch {} and train.micro_batch {} do not divide; set micro_batch to 1, or "
        "change the batch",
        c.launch.nodes, c.ranks_per_node(),
        c.launch.min_nodes > 1
            ? fmt::format(" and at least {} (launch.min_nodes)", c.launch.min_nodes)
            : "",
        c.train.global_batch, c.train.micro_batch));
  }
}

}  // namespace weft
