// base/option_value.cpp: strict parsing: a value that does not clearly have the type is rejected.
#include "base/option_value.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

namespace weft {
namespace {

template <typename T>
bool whole_number_text(std::string_view text, T* out) {
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.empty() || text[0] == '+') return false;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *out);
  return error == std::errc() && stop == end;
}

bool in_bounds(double v, const OptionRule& rule) {
  return std::isfinite(v) && !(rule.at_least && v < *rule.at_least) &&
         !(rule.above && v <= *rule.above) && !(rule.at_most && v > *rule.at_most) &&
         !(rule.below && v >= *rule.below);
}

bool read(const YamlNode& node, const OptionRule& rule, double* out) {
  return node.is_scalar() && !node.quoted && whole_number_text(node.text, out) &&
         in_bounds(*out, rule);
}

bool read(const YamlNode& node, const OptionRule& rule, int64_t* out) {
  return node.is_scalar() && !node.quoted && whole_number_text(node.text, out) &&
         in_bounds(static_cast<double>(*out), rule);
}

bool read(const YamlNode& node, const OptionRule&, bool* out) {
  *out = node.text == "true";
  return node.is_scalar() && !node.quoted && (*out || node.text == "false");
}

bool read(const YamlNode& node, const OptionRule& rule, std::string* out) {
  const std::vector<std::string>& allowed = rule.allowed;
  *out = node.text;
  return node.is_scalar() && is_utf8(node.text) &&
         (allowed.empty() || std::find(allowed.begin(), allowed.end(), node.text) != allowed.end());
}

template <typename T>
bool read(const YamlNode& node, const OptionRule& rule, std::vector<T>* out) {
  // A single file is a list of one: `train: wiki.txt`.
  const bool single = node.is_scalar() && std::is_same_v<T, std::string>;
  if (single) {
    out->resize(1);
    if (!read(node, rule, &(*out)[0])) return false;
  } else {
    if (!node.is_list()) return false;
    out->resize(node.items.size());
    for (size_t i = 0; i < node.items.size(); ++i) {
      if (!read(node.items[i], rule, &(*out)[i])) return false;
    }
  }
  return !rule.length || out->size() == *rule.length;
}

bool read(const YamlNode& node, const OptionRule& rule, std::map<std::string, std::string>* out) {
  if (!node.is_map() && !node.is_null()) return false;
  for (const YamlNode& item : node.items) {
    if (!is_utf8(item.key) || !read(item, rule, &(*out)[item.key])) return false;
  }
  return true;
}

template <typename T>
bool read(const YamlNode& node, const OptionRule& rule, std::optional<T>* out) {
  if (node.is_null()) return true;  // absent
  T value{};
  if (!read(node, rule, &value)) return false;
  *out = std::move(value);
  return true;
}

// Shortest text that reads back to the same bits.
std::string print(double v) { return fmt::format("{}", v); }
std::string print(int64_t v) { return fmt::format("{}", v); }
std::string print(bool v) { return v ? "true" : "false"; }
std::string print(const std::string& v) { return yaml_scalar(v); }
template <typename T>
std::string print(const std::vector<T>& v) {
  std::string out;
  for (const T& item : v) out += (out.empty() ? "" : ", ") + print(item);
  return "[" + out + "]";
}
std::string print(const std::map<std::string, std::string>& v) {
  std::string out;
  for (const auto& [key, item] : v) {
    out += (out.empty() ? "" : ", ") + yaml_scalar(key) + ": " + yaml_scalar(item);
  }
  return "{" + out + "}";
}
template <typename T>
std::string print(const std::optional<T>& v) {
  return v ? print(*v) : "null";
}

std::string bounds_text(const OptionRule& rule) {
  std::string out;
  auto add = [&](const char* sign, const std::optional<double>& bound) {
    if (bound) out += fmt::format("{} {} {}", out.empty() ? "" : " and", sign, *bound);
  };
  add(">=", rule.at_least);
  add(">", rule.above);
  add("<=", rule.at_most);
  add("<", rule.below);
  return out;
}

std::string wanted(const int64_t&, const OptionRule& rule) {
  return "a whole number" + bounds_text(rule);
}
std::string wanted(const double&, const OptionRule& rule) { return "a number" + bounds_text(rule); }
std::string wanted(const bool&, const OptionRule&) { return "true or false"; }
std::string wanted(const std::string&, const OptionRule& rule) {
  if (rule.allowed.empty()) return "text";
  std::string out;
  for (const std::string& word : rule.allowed) out += (out.empty() ? "" : " | ") + word;
  return out;
}
template <typename T>
std::string wanted(const std::vector<T>&, const OptionRule& rule) {
  const std::string count = rule.length ? fmt::format(" of {}", *rule.length) : "";
  return fmt::format("a list [a, b]{}, each {}", count, wanted(T{}, rule));
}
std::string wanted(const std::map<std::string, std::string>&, const OptionRule&) {
  return "a map {name: text}";
}
template <typename T>
std::string wanted(const std::optional<T>&, const OptionRule& rule) {
  return wanted(T{}, rule);
}

}  // namespace

std::string wanted_text(const OptionTarget& target, const OptionRule& rule) {
  return std::visit([&](const auto* at) { return wanted(*at, rule); }, target);
}

std::string got_text(const YamlNode& node) {
  if (node.is_null()) return "nothing";
  if (node.is_list()) return fmt::format("a list of {}", node.items.size());
  if (node.is_map()) return "a section {key: value}";
  constexpr size_t kShown = 60;
  if (!is_utf8(node.text)) return "text that is not UTF-8";
  if (node.text.size() > kShown) return fmt::format("text of {} bytes", node.text.size());
  if (node.quoted) return fmt::format("\"{}\"", node.text);
  return node.text.empty() ? "empty" : node.text;
}

std::optional<std::string> value_text(const OptionTarget& target, const OptionRule& rule,
                                      const YamlNode& node) {
  return std::visit(
      [&](const auto* at) -> std::optional<std::string> {
        std::remove_cvref_t<decltype(*at)> value{};
        if (!read(node, rule, &value)) return std::nullopt;
        return print(value);
      },
      target);
}

bool assign(const OptionTarget& target, const OptionRule& rule, const YamlNode& node) {
  return std::visit(
      [&](auto* at) {
        std::remove_reference_t<decltype(*at)> value{};
        if (!read(node, rule, &value)) return false;
        *at = std::move(value);
        return true;
      },
      target);
}

std::string print_value(const OptionTarget& target) {
  return std::visit([](const auto* at) { return print(*at); }, target);
}

bool is_list(const OptionTarget& target) {
  return std::holds_alternative<std::vector<std::string>*>(target) ||
         std::holds_alternative<std::vector<double>*>(target);
}

bool is_map(const OptionTarget& target) {
  return std::holds_alternative<std::map<std::string, std::string>*>(target);
}

}  // namespace weft
