// base/option_value.h: one typed value behind an option: reading, checking, printing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/yaml.h"

namespace weft {

// Where the value of an option lives.
using OptionTarget =
    std::variant<int64_t*, double*, bool*, std::string*, std::vector<std::string>*,
                 std::vector<double>*, std::map<std::string, std::string>*, std::optional<int64_t>*,
                 std::optional<double>*, std::optional<bool>*, std::optional<std::string>*>;

// What a value must be, beyond its type. For lists of numbers the bounds hold for each.
struct OptionRule {
  std::vector<std::string> allowed;  // empty: any text
  std::optional<double> at_least, above, at_most, below;
  std::optional<size_t> length;  // of a list
};

// "a number above 0", "true or false", "one of none, full": what a complaint says was wanted.
std::string wanted_text(const OptionTarget& target, const OptionRule& rule);

// What a node holds, for a complaint: `"abc"`, `1.5`, `a list`, `a section`, `nothing`.
std::string got_text(const YamlNode& node);

// The node's value as print_value would print it; none where type or rule forbid it.
std::optional<std::string> value_text(const OptionTarget& target, const OptionRule& rule,
                                      const YamlNode& node);

// The node's value into the target; false, and the target untouched, where type or rule forbid.
bool assign(const OptionTarget& target, const OptionRule& rule, const YamlNode& node);

// The value as YAML on one line; assign() reads it back to the same value.
std::string print_value(const OptionTarget& target);

bool is_list(const OptionTarget& target);
bool is_map(const OptionTarget& target);

}  // namespace weft
