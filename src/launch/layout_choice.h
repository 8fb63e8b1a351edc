// launch/layout_choice.h: the layout of the next generation: the largest that has its nodes and
// fits into memory.
//
// Planning a layout may take seconds, in which agents must be answered: it runs on a thread of its
// own, and the choice is polled.
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/placement.h"

namespace weft {

struct LayoutFit {
  std::string shortage = "";                // why it does not fit; "": it does
  std::vector<std::string> arguments = {};  // that its ranks need besides
  bool has_snapshots = true;                // false: there is no memory for slots
  std::string warning = "";                 // what its ranks do without, and why; "": nothing
};
// freed_bytes: of the first node, in use now and free when the layout needs them. On another
// thread; no throw.
using LayoutCheck = std::function<LayoutFit(const NodeLayout&, int64_t freed_bytes)>;

struct ChosenLayout {
  NodeLayout layout;
  LayoutFit fit;
};

class LayoutChoice {
 public:
  // layouts: at least one; the first is what was asked for, which was checked before. check: null:
  // all of them fit. Those with less than fewest_nodes are not chosen before allow_all().
  LayoutChoice(std::vector<NodeLayout> layouts, LayoutCheck check, int fewest_nodes = 1);

  const NodeLayout& asked() const { return layouts_.front(); }
  bool is_elastic() const { return is_elastic_; }
  // For that many nodes, of those that were not found too large since begin(); none: there is none.
  std::optional<NodeLayout> largest(int num_nodes) const;

  void begin();  // everything may have changed: nothing is ruled out any more
  void allow_all() { fewest_nodes_ = 1; }
  // None: a check runs (is_checking), or there is none that fits.
  std::optional<ChosenLayout> poll(int num_nodes, int64_t freed_bytes = 0);
  bool is_checking() const { return check_running_.valid(); }
  const std::string& shortage() const { return shortage_; }  // of the last that did not fit

 private:
  std::vector<NodeLayout> layouts_;
  LayoutCheck check_;
  int fewest_nodes_;
  bool is_elastic_;
  std::future<LayoutFit> check_running_;
  NodeLayout checked_;
  std::set<int> ruled_out_;  // numbers of nodes
  std::string shortage_;
};

}  // namespace weft
