// launch/previous_slots.cpp: a node's own slots, else the copies that the next one keeps.
#include "launch/previous_slots.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

size_t partner_of(size_t node, size_t num_nodes) { return (node + 1) % num_nodes; }

// Null: it is lost, and its partner too.
const std::vector<int64_t>* steps_of(const ParkedNodes& nodes, size_t node) {
  if (nodes[node]) return &nodes[node]->steps;
  const std::optional<Parked>& partner = nodes[partner_of(node, nodes.size())];
  return partner ? &partner->kept : nullptr;
}

}  // namespace

std::optional<int64_t> newest_parked_step(const ParkedNodes& nodes) {
  std::optional<int64_t> newest;
  const std::vector<int64_t>* first = steps_of(nodes, 0);
  if (first == nullptr) return std::nullopt;
  for (const int64_t step : *first) {
    bool is_common = true;
    for (size_t n = 0; n < nodes.size() && is_common; ++n) {
      const std::vector<int64_t>* steps = steps_of(nodes, n);
      is_common = steps != nullptr && std::find(steps->begin(), steps->end(), step) != steps->end();
    }
    if (is_common && (!newest || step > *newest)) newest = step;
  }
  return newest;
}

PreviousSlots::PreviousSlots(ParkedNodes nodes, std::vector<std::string> endpoints)
    : nodes_(std::move(nodes)), endpoints_(std::move(endpoints)) {}

void PreviousSlots::lose(const std::string& endpoint) {
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n] && endpoints_[n] == endpoint) nodes_[n].reset();
  }
}

std::vector<std::string> PreviousSlots::endpoints() const {
  std::vector<std::string> all;
  for (size_t n = 0; n < nodes_.size(); ++n)
    all.push_back(endpoints_[nodes_[n] ? n : partner_of(n, nodes_.size())]);
  return all;
}

}  // namespace weft
