// verify/verify_layouts.cpp: a layout's short keys and the run file's keys that they stand for.
#include "verify/verify_layouts.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/options.h"
#include "base/suggest.h"

namespace weft {
namespace {

const std::map<std::string, std::string> kKeys = {
    {"dp", "parallel.dp"},
    {"tp", "parallel.tp"},
    {"shard", "parallel.shard"},
    {"mode", "parallel.mode"},
    {"exact_tp", "parallel.exact_tp"},
    {"exact_dp", "parallel.exact_dp"},
    {"exact_rows", "parallel.exact_rows"},
    {"micro_batch", "train.micro_batch"},
    {"recompute", "train.recompute"},
    {"threads", "launch.threads"},
};

std::vector<std::string> known_keys() {
  std::vector<std::string> names;
  for (const auto& [key, full] : kKeys) names.push_back(key);
  return names;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == at) {
      parts.emplace_back();
    } else if (c != ' ' && c != '\t' && c != '\n') {
      parts.back() += c;
    }
  }
  return parts;
}

// "dp=2tp=2" (blanks removed): the key whose "=" is inside another's value; empty: none is.
std::string key_inside(const std::string& value) {
  const std::string before = value.substr(0, value.find('='));
  std::string longest;
  if (before.size() == value.size()) return longest;
  for (const auto& [key, full] : kKeys) {
    if (before.ends_with(key) && key.size() > longest.size()) longest = key;
  }
  return longest;
}

// The missing separator: a comma, or a semicolon where the second key begins another layout.
std::string missing_mark(const std::string& layout, const std::string& inside,
                         const std::vector<std::string>& seen) {
  const bool is_new_layout = std::find(seen.begin(), seen.end(), inside) != seen.end();
  return fmt::format("layout \"{}\": a {} is missing before {}=", layout,
                     is_new_layout ? "semicolon" : "comma", inside);
}

void read_part(const std::string& part, VerifyLayout* layout, std::vector<std::string>* seen,
               std::vector<std::string>* complaints) {
  const size_t equals = part.find('=');
  const std::string key = part.substr(0, equals);
  const auto found = kKeys.find(key);
  if (equals == std::string::npos || equals + 1 == part.size()) {
    complaints->push_back(
        fmt::format("layout \"{}\": \"{}\" is not key=value", layout->name, part));
  } else if (found == kKeys.end()) {
    complaints->push_back(fmt::format(
        "layout \"{}\": unknown key \"{}\"{}; known: {}", layout->name, key,
        did_you_mean(key, known_keys()),
        "dp, tp, shard, mode, exact_tp, exact_dp, exact_rows, micro_batch, recompute, threads"));
  } else if (std::find(seen->begin(), seen->end(), key) != seen->end()) {
    complaints->push_back(
        fmt::format("layout \"{}\" gives {} twice; a semicolon ends a layout: \"dp=1; dp=2\"",
                    layout->name, key));
  } else {
    seen->push_back(key);
    if (const std::string inside = key_inside(part.substr(equals + 1)); !inside.empty()) {
      complaints->push_back(missing_mark(layout->name, inside, *seen));
    }
    layout->sets.push_back(found->second + part.substr(equals));
  }
}

VerifyLayout read_layout(const std::string& text, std::vector<std::string>* complaints) {
  VerifyLayout layout;
  layout.name = text;
  layout.label = text;
  std::replace_if(
      layout.label.begin(), layout.label.end(),
      [](char c) { return c == ',' || c == '=' || c == '/' || c == '.'; }, '_');
  layout.sets = {"parallel.dp=1", "parallel.tp=1", "parallel.shard=none", "train.grad_accum=0"};
  std::vector<std::string> seen;
  for (const std::string& part : split(text, ',')) read_part(part, &layout, &seen, complaints);
  return layout;
}

}  // namespace

std::vector<VerifyLayout> parse_layouts(const std::string& text) {
  std::vector<VerifyLayout> layouts;
  std::vector<std::string> complaints;
  for (const std::string& part : split(text, ';')) {
    if (part.empty()) continue;
    VerifyLayout layout = read_layout(part, &complaints);
    for (const VerifyLayout& other : layouts) {
      if (other.label != layout.label) continue;
      complaints.push_back(fmt::format("layout \"{}\" is given twice", layout.name));
    }
    layouts.push_back(std::move(layout));
  }
  if (layouts.size() < 2) {
    complaints.push_back(
        fmt::format("--layouts gives {} layout{}, but a comparison needs two: \"dp=1; dp=2; "
                    "tp=2,shard=zero1\"",
                    layouts.size(), layouts.size() == 1 ? "" : "s"));
  }
  refuse(complaints);
  return layouts;
}

}  // namespace weft
