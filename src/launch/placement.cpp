// launch/placement.cpp: numbers that still exist are kept, gaps are filled.
#include "launch/placement.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <tuple>
#include <utility>

namespace weft {
namespace {

bool is_same_host(std::string_view a, std::string_view b) {
  if (a.size() > b.size()) std::swap(a, b);
  return b.starts_with(a) && (b.size() == a.size() || b[a.size()] == '.');
}

}  // namespace

std::string NodeLayout::describe() const {
  return fmt::format("dp={} on {} node{}", dp, num_nodes, num_nodes == 1 ? "" : "s");
}

const NodeLayout* largest_layout(const std::vector<NodeLayout>& layouts, int num_nodes) {
  const NodeLayout* largest = nullptr;
  for (const NodeLayout& layout : layouts) {
    if (layout.num_nodes > num_nodes) continue;
    if (largest == nullptr || layout.num_nodes > largest->num_nodes) largest = &layout;
  }
  return largest;
}

std::vector<int> place_agents(const std::vector<PlacedAgent>& agents, int num_nodes) {
  std::vector<int> numbers(agents.size(), -1);
  std::vector<bool> is_taken(static_cast<size_t>(num_nodes), false);
  is_taken[0] = true;
  std::vector<size_t> others;
  bool has_first = false;
  for (size_t i = 0; i < agents.size(); ++i) {
    const PlacedAgent& agent = agents[i];
    if (agent.is_first && std::exchange(has_first, true)) continue;  // one that is about to be lost
    const int wanted = agent.is_first ? 0 : agent.node;
    const bool keeps = agent.is_first ||
                       (wanted > 0 && wanted < num_nodes && !is_taken[static_cast<size_t>(wanted)]);
    if (!keeps) {
      others.push_back(i);
      continue;
    }
    numbers[i] = wanted;
    is_taken[static_cast<size_t>(wanted)] = true;
  }
  std::stable_sort(others.begin(), others.end(), [&](size_t a, size_t b) {
    const auto order = [&](size_t i) { return std::tuple(agents[i].node < 0, agents[i].node); };
    return order(a) < order(b);
  });
  size_t gap = 0;
  for (const size_t i : others) {
    while (gap < is_taken.size() && is_taken[gap]) ++gap;
    if (gap == is_taken.size()) break;
    numbers[i] = static_cast<int>(gap);
    is_taken[gap] = true;
  }
  return numbers;
}

std::vector<std::string> missing_hosts(std::vector<std::string> named,
                                       const std::vector<std::string>& joined) {
  for (const std::string& host : joined) {
    auto found = std::find(named.begin(), named.end(), host);
    if (found == named.end())
      found = std::find_if(named.begin(), named.end(),
                           [&](const std::string& name) { return is_same_host(name, host); });
    if (found != named.end()) named.erase(found);
  }
  return named;
}

}  // namespace weft
