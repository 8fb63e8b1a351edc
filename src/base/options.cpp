// base/options.cpp: the table: finding keys, complaining, printing.
#include "base/options.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/suggest.h"

namespace weft {
namespace {

std::string section_of(std::string_view key) {
  const size_t dot = key.find('.');
  return dot == std::string_view::npos ? "" : std::string(key.substr(0, dot));
}

std::string name_of(std::string_view key) {
  const size_t dot = key.find('.');
  return std::string(dot == std::string_view::npos ? key : key.substr(dot + 1));
}

std::string trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(' ') - first + 1));
}

// A user's key or value, safe to show in a message.
std::string shown(std::string_view text) {
  if (!is_utf8(text)) return "(bytes that are not UTF-8)";
  return text.size() <= 60 ? std::string(text) : std::string("(long text)");
}

// Quotes items that begin with *: [*, a.*] becomes ["*", a.*].
std::string with_quotes(std::string_view list) {
  std::string out;
  bool at_start = false, open = false;
  for (const char c : list) {
    const bool ends = c == ',' || c == ']' || c == ' ';
    if (open && ends) {
      out += '"';
      open = false;
    }
    if (at_start && c == '*') {
      out += '"';
      open = true;
    }
    out += c;
    if (c != ' ') at_start = c == '[' || c == ',';
  }
  return out;
}

// One key as YAML, preceded by its section's name where a new section begins.
void append_line(const std::string& key, const std::string& value, std::string* section,
                 std::string* text) {
  if (section_of(key) != *section) {
    *section = section_of(key);
    if (!section->empty()) *text += *section + ":\n";
  }
  *text += fmt::format("{}{}: {}\n", section->empty() ? "" : "  ", name_of(key), value);
}

// The normal form of synonyms: learning-rate and learningRate become learning_rate.
std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    const bool is_upper = c >= 'A' && c <= 'Z';
    if (is_upper && !plain.empty() && plain.back() != '_') plain += '_';
    plain += c == '-' ? '_' : is_upper ? static_cast<char>(c + 32) : c;
  }
  return plain;
}

}  // namespace

Option::Option(std::string key, OptionTarget target, std::string help)
    : key_(std::move(key)),
      target_(target),
      help_(std::move(help)),
      default_(print_value(target)) {}

Option& Option::one_of(std::initializer_list<std::string> allowed) {
  rule_.allowed = allowed;
  return *this;
}
Option& Option::at_least(double bound) {
  rule_.at_least = bound;
  return *this;
}
Option& Option::above(double bound) {
  rule_.above = bound;
  return *this;
}
Option& Option::at_most(double bound) {
  rule_.at_most = bound;
  return *this;
}
Option& Option::below(double bound) {
  rule_.below = bound;
  return *this;
}
Option& Option::between(double least, double most) { return at_least(least).at_most(most); }
Option& Option::length(size_t items) {
  rule_.length = items;
  return *this;
}
Option& Option::required() {
  required_ = true;
  return *this;
}
Option& Option::answer(Answer words) {
  answer_ = words;
  return *this;
}
Option& Option::not_built(std::string reason) {
  not_built_ = true;
  reason_ = std::move(reason);
  return *this;
}
Option& Option::not_built_values(std::initializer_list<std::string> values, std::string hint) {
  missing_values_ = values;
  hint_ = std::move(hint);
  return *this;
}

Option& Option::hide(IsSecret is_secret, const char* instead) {
  is_secret_ = is_secret;
  instead_ = instead;
  return *this;
}

std::string Option::printed() const {
  using Map = std::map<std::string, std::string>;
  if (!is_secret_ || !is_map(target_)) return print_value(target_);
  Map shown = *std::get<Map*>(target_);
  for (auto& [name, value] : shown) {
    if (is_secret_(name)) value = instead_;
  }
  return print_value(&shown);
}

bool Option::lacks(const std::string& value) const {
  if (not_built_) return value != default_;
  return std::any_of(missing_values_.begin(), missing_values_.end(),
                     [&](const std::string& missing) { return yaml_scalar(missing) == value; });
}

Option& OptionTable::add(std::string key, OptionTarget target, std::string help) {
  ensure(find(key) == nullptr, "option added twice: " + key);
  const std::string section = section_of(key);
  const bool opened = is_section(section);
  ensure(section.empty() || !opened || section_of(options_.back().key_) == section,
         "options of a section must be added together: " + key);
  return options_.emplace_back(std::move(key), target, std::move(help));
}

void OptionTable::add_synonym(std::string other, std::string instead) {
  const std::string key = instead.substr(0, instead.find_first_of(" ,:"));
  ensure(find(key) != nullptr, "a synonym of no key: " + other);
  ensure(synonyms_.emplace(std::move(other), std::move(instead)).second, "a synonym given twice");
}

void OptionTable::add_absent(std::string other, std::string answer) {
  ensure(absent_.emplace(std::move(other), std::move(answer)).second, "an absent key given twice");
}

void OptionTable::add_alternatives(std::vector<std::vector<std::string>> groups) {
  for (const auto& group : groups) {
    for (const std::string& key : group) ensure(find(key) != nullptr, "no option " + key);
  }
  alternatives_.push_back(std::move(groups));
}

void OptionTable::read(const YamlNode& root, std::string_view source,
                       std::vector<std::string>& complaints) {
  auto where = [&](const YamlNode& node) { return fmt::format("{}:{}", source, node.line); };
  if (root.is_null()) return;
  if (!root.is_map()) {
    complaints.push_back(
        fmt::format("{}: wanted keys and values, got {}", where(root), got_text(root)));
    return;
  }
  auto read_key = [&](const std::string& key, const YamlNode& node) {
    if (Option* option = find(key)) {
      give(*option, node, where(node), complaints);
    } else {
      complaints.push_back(where(node) + ": " + unknown(key));
    }
  };
  for (const YamlNode& node : root.items) {
    const bool dotted = node.key.find('.') != std::string::npos;
    if (dotted && find(node.key)) {  // one key must not appear in two places
      complaints.push_back(fmt::format("{}: key {}: write \"{}:\" and \"{}:\" indented below it",
                                       where(node), node.key, section_of(node.key),
                                       name_of(node.key)));
    } else if (!is_section(node.key)) {
      read_key(node.key, node);
    } else if (node.is_map()) {
      for (const YamlNode& item : node.items) read_key(node.key + "." + item.key, item);
    } else if (!node.is_null()) {
      complaints.push_back(fmt::format("{}: {} is a section of keys, got {}", where(node), node.key,
                                       got_text(node)));
    }
  }
}

void OptionTable::set(std::string_view assignment, std::vector<std::string>& complaints) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    complaints.push_back(
        fmt::format("--set {}: wanted section.key=value, got no \"=\"", shown(assignment)));
    return;
  }
  const std::string key = trimmed(assignment.substr(0, equals));
  const std::string_view value = assignment.substr(equals + 1);
  const std::string where = fmt::format("--set {}", shown(assignment));
  Option* option = find(key);
  if (!option && is_section(key)) {
    complaints.push_back(
        fmt::format("{}: {} is a section, not a key: wanted {}.key=value", where, key, key));
    return;
  }
  if (!option) {
    complaints.push_back(where + ": " + unknown(key));
    return;
  }
  YamlNode node;
  const bool is_yaml =
      is_map(option->target_) || (is_list(option->target_) && trimmed(value).starts_with('['));
  if (is_yaml) {
    try {
      node = parse_yaml(value, where);
    } catch (const UserError& e) {
      complaints.push_back(e.what());
      if (value.find('*') != std::string_view::npos)
        complaints.back() += fmt::format("; in a shell: --set '{}={}'", key, with_quotes(value));
      return;
    }
  } else if (trimmed(value) != "null") {
    node.kind = YamlNode::Kind::kScalar;
    node.text = value;
  }
  std::erase(expected_, key);  // it is given now
  if (node.is_null() && !option->required_) return unset(*option);
  give(*option, node, where, complaints);
  set_.push_back(key);
  unset_alternatives(*option, where);
}

void OptionTable::unset(Option& option) {
  assign(option.target_, option.rule_, parse_yaml(option.default_, option.key_));
  option.given_ = false;
}

void OptionTable::unset_alternatives(const Option& option, const std::string& where) {
  const auto has = [](const std::vector<std::string>& keys, const std::string& key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  for (const auto& groups : alternatives_) {
    const bool is_one = std::any_of(groups.begin(), groups.end(),
                                    [&](const auto& group) { return has(group, option.key_); });
    for (const auto& group : groups) {
      if (!is_one || has(group, option.key_)) continue;
      for (const std::string& key : group) {
        Option& other = *find(key);
        // What --set gave too is a contradiction, which the checks report.
        if (!other.given_ || has(set_, key) || print_value(other.target_) == other.default_)
          continue;
        unset(other);
        replaced_.push_back(fmt::format("{} replaces {} from the run file", where, key));
      }
    }
  }
}

void OptionTable::give(Option& option, const YamlNode& given, const std::string& where,
                       std::vector<std::string>& complaints) {
  // A text that is absent by default is unset in the same way as other optional values.
  YamlNode absent;
  absent.kind = YamlNode::Kind::kScalar;
  absent.quoted = true;
  const bool takes_away = given.is_null() && !option.required_ && option.default_ == "\"\"";
  const YamlNode& node = takes_away ? absent : given;
  const std::optional<std::string> value = value_text(option.target_, option.rule_, node);
  if (!value) {
    std::string line = fmt::format("{}: {} is {}, wanted {}", where, option.key_, got_text(node),
                                   wanted_text(option.target_, option.rule_));
    if (node.is_scalar()) {
      const std::string answer = option.answer_ ? option.answer_(node.text) : "";
      line += answer.empty() ? did_you_mean(node.text, option.rule_.allowed) : answer;
    }
    if (node.is_map()) line += "; put quotes around text that begins with {";
    complaints.push_back(line);
    option.given_ = true;  // one complaint is enough
  } else if (option.required_ && *value == "[]") {
    complaints.push_back(
        fmt::format("{}: {} is an empty list, wanted at least one", where, option.key_));
  } else if (option.lacks(*value) &&
             std::count(expected_.begin(), expected_.end(), option.key_) > 0) {
    return;
  } else if (option.lacks(*value) && !takes(option)) {
    complaints.push_back(fmt::format("{}: {} is {}, which this build does not have{}{}", where,
                                     option.key_, *value,
                                     option.hint_.empty() ? " yet" : ": " + option.hint_,
                                     option.reason_.empty() ? "" : ": " + option.reason_));
    if (option.not_built_) complaints.back() += "; leave it at " + option.default_;
  } else {
    if (option.lacks(*value)) not_built_.push_back(fmt::format("{}: {}", option.key_, *value));
    assign(option.target_, option.rule_, node);
    option.given_ = true;
  }
}

bool OptionTable::takes(const Option& option) const {
  return takes_not_built_ || std::any_of(unread_.begin(), unread_.end(), [&](const auto& key) {
           return key.ends_with('.') ? option.key_.starts_with(key) : option.key_ == key;
         });
}

void OptionTable::expect(const std::vector<std::string>& assignments) {
  for (const std::string& one : assignments) {
    expected_.push_back(trimmed(std::string_view(one).substr(0, one.find('='))));
  }
}

void OptionTable::check_required(std::vector<std::string>& complaints) const {
  for (const Option& option : options_) {
    if (option.required_ && !option.given_) {
      complaints.push_back(fmt::format("{} must be given: {} ({})", option.key_, option.help_,
                                       wanted_text(option.target_, option.rule_)));
    }
  }
}

bool OptionTable::was_given(std::string_view key) const {
  const Option* option = const_cast<OptionTable*>(this)->find(key);
  ensure(option != nullptr, "no option " + std::string(key));
  return option->given_;
}

void OptionTable::mark_chosen(std::string_view key, std::string word) {
  Option* option = find(key);
  ensure(option != nullptr, "no option " + std::string(key));
  option->chosen_for_ = std::move(word);
}

std::vector<OptionEntry> OptionTable::entries() const {
  std::vector<OptionEntry> out;
  for (const Option& o : options_) {
    out.push_back({o.key_, o.help_, wanted_text(o.target_, o.rule_), o.default_, o.printed(),
                   o.required_, o.given_, o.not_built_, o.missing_values_});
  }
  return out;
}

std::string OptionTable::resolved() const {
  std::string text, section;
  for (const Option& o : options_) {
    std::string mark = o.not_built_ ? "  # not built" : o.given_ ? "" : "  # default";
    if (!o.chosen_for_.empty()) mark = "  # " + o.chosen_for_;
    append_line(o.key_, o.printed() + mark, &section, &text);
  }
  return text;
}

Option* OptionTable::find(std::string_view key) {
  for (Option& option : options_) {
    if (option.key_ == key) return &option;
  }
  return nullptr;
}

bool OptionTable::is_section(std::string_view name) const {
  if (name.empty()) return false;
  return std::any_of(options_.begin(), options_.end(),
                     [&](const Option& o) { return section_of(o.key_) == name; });
}

// The nearest name of the same section; else the nearest key of all; else the same name elsewhere.
std::optional<std::string> OptionTable::find_similar(std::string_view key) const {
  const std::string section = section_of(key);
  std::vector<std::string> names, keys;
  for (const Option& o : options_) {
    if (section_of(o.key_) == section) names.push_back(name_of(o.key_));
    const std::string other = section_of(o.key_);
    keys.push_back(section.empty() && !other.empty() ? other : o.key_);
  }
  std::optional<std::string> near = nearest(name_of(key), names);
  if (near && !section.empty()) near = section + "." + *near;
  if (!near && !is_section(section)) near = nearest(key, keys);
  for (const Option& o : options_) {
    if (!near && name_of(o.key_) == name_of(key)) near = o.key_;
  }
  return near;
}

// Another program's name for the key says more than a similar spelling.
std::string OptionTable::unknown(std::string_view key) const {
  const auto absent = absent_.find(plain_name(name_of(key)));
  if (absent != absent_.end()) return fmt::format("unknown key {}: {}", shown(key), absent->second);
  const auto synonym = synonyms_.find(plain_name(name_of(key)));
  if (synonym != synonyms_.end())
    return fmt::format("unknown key {}; here it is {}", shown(key), synonym->second);
  const std::optional<std::string> near = find_similar(key);
  return fmt::format("unknown key {}{}", shown(key),
                     near ? ", did you mean \"" + *near + "\"?" : "");
}

void refuse(const std::vector<std::string>& complaints) {
  if (complaints.empty()) return;
  std::string text;
  for (const std::string& line : complaints) text += (text.empty() ? "" : "\n  ") + line;
  throw UserError(text);
}

}  // namespace weft
