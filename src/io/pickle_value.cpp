// io/pickle_value.cpp: typed access to a pickle's values, and the proof that a walk over them ends.
#include <algorithm>

#include "base/error.h"
#include "io/pickle.h"

namespace weft {
namespace {

constexpr uint32_t kMaxDepth = 100;
constexpr uint64_t kMaxUnfolded = uint64_t{1} << 26;

}  // namespace

// Values may be shared, so they form a graph. Depth first without recursion: a value that is met
// again while its own parts are open contains itself. On the way back each value's depth and
// unfolded size (its parts counted as often as they are referred to) are summed up.
void Pickle::check_walk() const {
  constexpr uint32_t kUnseen = 0, kOpen = UINT32_MAX;
  std::vector<uint32_t> depth(nodes_.size(), kUnseen);
  std::vector<uint64_t> unfolded(nodes_.size(), 0);
  const auto num_parts = [](const Node& n) { return n.items.size() + 2; };
  const auto part = [](const Node& n, size_t i) {
    if (i < n.items.size()) return n.items[i];
    return i == n.items.size() ? n.state : n.entries;
  };
  struct Visit {
    uint32_t node;
    size_t next;  // part to look at
  };
  std::vector<Visit> open = {{root_, 0}};
  depth[root_] = kOpen;
  while (!open.empty()) {
    auto& [at, next] = open.back();
    const Node& node = nodes_[at];
    if (next < num_parts(node)) {
      const uint32_t child = part(node, next++);
      if (child == kNone) continue;
      require(depth[child] != kOpen, "{}: a value contains itself", what_);
      if (depth[child] != kUnseen) continue;
      depth[child] = kOpen;
      open.push_back({child, 0});
      continue;
    }
    uint32_t deepest = 0;
    uint64_t total = 1;
    for (size_t i = 0; i < num_parts(node); ++i) {
      const uint32_t child = part(node, i);
      if (child == kNone) continue;
      deepest = std::max(deepest, depth[child]);
      total = std::min(total + unfolded[child], kMaxUnfolded + 1);
    }
    require(deepest < kMaxDepth, "{}: values are nested deeper than {} levels", what_, kMaxDepth);
    require(total <= kMaxUnfolded, "{}: shared values unfold to more than {}", what_, kMaxUnfolded);
    depth[at] = deepest + 1;
    unfolded[at] = total;
    open.pop_back();
  }
}

PickleValue Pickle::root() const { return {this, root_}; }

void PickleValue::want(bool ok, const char* wanted) const {
  require(ok, "{}: found {}, wanted {}", owner_->what_, kind_name(), wanted);
}

const char* PickleValue::kind_name() const {
  constexpr const char* kNames[] = {"None",  "a bool",  "an int",    "a large int",    "a float",
                                    "a str", "bytes",   "a list",    "a tuple",        "a dict",
                                    "a set", "a class", "an object", "a persistent id"};
  return kNames[static_cast<size_t>(kind())];
}

int64_t PickleValue::as_int() const {
  want(kind() == Pickle::Kind::kInt, "an int");
  return node().bits;
}

std::string_view PickleValue::as_string() const {
  want(is_string(), "a str");
  return node().text;
}

size_t PickleValue::size() const {
  want(is_list() || kind() == Pickle::Kind::kSet, "a list or tuple");
  return node().items.size();
}

PickleValue PickleValue::operator[](size_t i) const {
  require(i < size(), "{}: {} of {} elements, wanted one at {}", owner_->what_, kind_name(), size(),
          i);
  return other(node().items[i]);
}

size_t PickleValue::num_entries() const {
  want(is_dict(), "a dict");
  return node().items.size() / 2;
}

PickleValue PickleValue::key(size_t i) const {
  ensure(i < num_entries(), "an entry beyond the dict");
  return other(node().items[2 * i]);
}

PickleValue PickleValue::value(size_t i) const {
  ensure(i < num_entries(), "an entry beyond the dict");
  return other(node().items[2 * i + 1]);
}

std::optional<PickleValue> PickleValue::find(std::string_view wanted) const {
  if (!is_dict()) return std::nullopt;
  for (size_t i = num_entries(); i-- > 0;) {
    if (key(i).is_string() && key(i).as_string() == wanted) return value(i);
  }
  return std::nullopt;
}

PickleValue PickleValue::at(std::string_view wanted) const {
  const auto found = find(wanted);
  require(found.has_value(), "{}: {} has no \"{}\"", owner_->what_, kind_name(), wanted);
  return *found;
}

// An object of a nested class was made by another object, which has no name.
const Pickle::Node& PickleValue::class_node() const {
  return kind() == Pickle::Kind::kObject ? owner_->nodes_[node().items[0]] : node();
}

std::string PickleValue::class_name() const {
  const Pickle::Node& n = class_node();
  return n.kind == Pickle::Kind::kClass ? fmt::format("{}.{}", n.text, n.name) : "";
}

bool PickleValue::is_object(std::string_view name) const {
  const Pickle::Node& n = class_node();
  return kind() == Pickle::Kind::kObject && n.kind == Pickle::Kind::kClass &&
         name.size() == n.text.size() + 1 + n.name.size() && name.starts_with(n.text) &&
         name[n.text.size()] == '.' && name.ends_with(n.name);
}

PickleValue PickleValue::arguments() const {
  want(kind() == Pickle::Kind::kObject || kind() == Pickle::Kind::kPersistent, "an object");
  return other(node().items.back());
}

std::optional<PickleValue> PickleValue::state() const {
  if (node().state == Pickle::kNone) return std::nullopt;
  return other(node().state);
}

}  // namespace weft
