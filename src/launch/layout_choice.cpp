// launch/layout_choice.cpp: from the largest layout down.
#include "launch/layout_choice.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"

namespace weft {

LayoutChoice::LayoutChoice(std::vector<NodeLayout> layouts, LayoutCheck check, int fewest_nodes)
    : layouts_(std::move(layouts)),
      check_(std::move(check)),
      fewest_nodes_(fewest_nodes),
      is_elastic_(std::any_of(layouts_.begin() + 1, layouts_.end(), [&](const NodeLayout& layout) {
        return layout.num_nodes >= fewest_nodes;
      })) {}

void LayoutChoice::begin() {
  ruled_out_.clear();
  shortage_.clear();
}

std::optional<NodeLayout> LayoutChoice::largest(int num_nodes) const {
  std::vector<NodeLayout> left;
  for (const NodeLayout& layout : layouts_) {
    if (layout.num_nodes >= fewest_nodes_ && !ruled_out_.contains(layout.num_nodes))
      left.push_back(layout);
  }
  const NodeLayout* found = largest_layout(left, num_nodes);
  return found != nullptr ? std::optional(*found) : std::nullopt;
}

std::optional<ChosenLayout> LayoutChoice::poll(int num_nodes, int64_t freed_bytes) {
  const std::optional<NodeLayout> wanted = largest(num_nodes);
  if (is_checking()) {
    if (check_running_.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      return std::nullopt;
    LayoutFit fit = check_running_.get();
    if (!wanted || !(*wanted == checked_))
      return poll(num_nodes, freed_bytes);  // nodes have changed
    if (fit.shortage.empty()) return ChosenLayout{*wanted, std::move(fit)};
    log_warning("{} does not fit: {}", wanted->describe(), fit.shortage);
    shortage_ = fit.shortage;
    ruled_out_.insert(wanted->num_nodes);
    return poll(num_nodes, freed_bytes);
  }
  if (!wanted) return std::nullopt;
  if (*wanted == asked() || !check_) return ChosenLayout{*wanted, {}};
  checked_ = *wanted;
  check_running_ = std::async(std::launch::async, check_, checked_, freed_bytes);
  return std::nullopt;
}

}  // namespace weft
