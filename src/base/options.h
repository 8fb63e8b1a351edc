// base/options.h: one table of named values that makes parsing, defaults, help and validation.
//
//   OptionTable table;
//   table.add("train.lr", &config.lr, "learning rate").above(0);
//   table.add("train.precision", &config.precision, "compute type").one_of({"fp32", "bf16"});
//   std::vector<std::string> complaints;
//   table.read(parse_yaml(text, "run.yaml"), "run.yaml", complaints);
//   table.set("train.lr=1e-3", complaints);
//   table.check_required(complaints);
//   refuse(complaints);  // one UserError with all of them
//
// What a target holds when it is added is its default. A key is `name` or `section.name`; the keys
// of a section are added one after the other.
#pragma once

#include <deque>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/option_value.h"
#include "base/yaml.h"

namespace weft {

class Option {
 public:
  Option(std::string key, OptionTarget target, std::string help);

  Option& one_of(std::initializer_list<std::string> allowed);
  Option& at_least(double bound);
  Option& above(double bound);
  Option& at_most(double bound);
  Option& below(double bound);
  Option& between(double least, double most);  // both included
  Option& length(size_t items);                // of a list
  Option& required();
  // What to append to the message about a value that is not allowed; empty: the nearest match.
  using Answer = std::string (*)(std::string_view value);
  Option& answer(Answer words);
  // Values of a map whose names are secret: they are printed as `instead`.
  using IsSecret = bool (*)(std::string_view name);
  Option& hide(IsSecret is_secret, const char* instead);
  // This build does not have the key: its default acts as off, and any other value is refused with
  // the reason, a phrase such as "tensor parallelism".
  Option& not_built(std::string reason);
  // The same for some of the allowed values. `hint`: what to do where another build has them.
  Option& not_built_values(std::initializer_list<std::string> values, std::string hint = "");

 private:
  friend class OptionTable;
  bool lacks(const std::string& value) const;  // the printed value is not built
  std::string printed() const;                 // the value, without secrets

  std::string key_;
  OptionTarget target_;
  std::string help_;
  OptionRule rule_;
  std::string default_;  // as printed
  bool required_ = false;
  bool given_ = false;
  bool not_built_ = false;
  std::string reason_, hint_;
  std::string chosen_for_;  // the word that was given
  Answer answer_ = nullptr;
  IsSecret is_secret_ = nullptr;
  const char* instead_ = "";
  std::vector<std::string> missing_values_;
};

struct OptionEntry {
  std::string key, help, wanted, default_value, value;
  bool required, given, not_built;
  std::vector<std::string> missing_values;  // of the allowed ones, those that are not built
};

class OptionTable {
 public:
  OptionTable() = default;
  OptionTable(const OptionTable&) = delete;  // targets point into one config
  OptionTable& operator=(const OptionTable&) = delete;

  Option& add(std::string key, OptionTarget target, std::string help);
  // What other programs call a key, for suggestions alone: it is not accepted. `instead` is the
  // key, or a phrase with it.
  void add_synonym(std::string other, std::string instead);

  // A key that other programs have and this one does not: `answer` names the alternative.
  void add_absent(std::string other, std::string answer);
  // Groups of keys, of which a file gives one group. Where set() gives a key of one group, the
  // file's values of the others are unset, and replaced() reports it.
  void add_alternatives(std::vector<std::vector<std::string>> groups);

  // Reads every key of the tree; each complaint is one line with `source` and line number, and
  // leaves its target as it was.
  void read(const YamlNode& root, std::string_view source, std::vector<std::string>& complaints);
  // "section.key=value" as --set passes it. Text is taken literally, without YAML's quotes; lists
  // and maps are written as YAML: [a, b], {k: v}. null unsets a key.
  void set(std::string_view assignment, std::vector<std::string>& complaints);
  void check_required(std::vector<std::string>& complaints) const;
  // These assignments will be set(): the file may give their keys values that this build does not
  // have.
  void expect(const std::vector<std::string>& assignments);
  // From here on a value that this build does not have is accepted: for inspecting a run file that
  // this build cannot train. The second: of these keys only, given as "key" or "section.".
  void take_not_built() { takes_not_built_ = true; }
  void take_not_built(std::vector<std::string> keys) { unread_ = std::move(keys); }
  const std::vector<std::string>& not_built() const { return not_built_; }  // "key: value"
  // "--set train.steps=4 replaces train.epochs of the run file"
  const std::vector<std::string>& replaced() const { return replaced_; }

  bool was_given(std::string_view key) const;
  // The target was given as a word such as `auto`, and now holds what was chosen for it: resolved()
  // adds the word as a remark.
  void mark_chosen(std::string_view key, std::string word);
  std::vector<OptionEntry> entries() const;
  // YAML of every key in order, with `# default` or `# not built` after keys that were not given.
  std::string resolved() const;

 private:
  Option* find(std::string_view key);
  void give(Option& option, const YamlNode& given, const std::string& where,
            std::vector<std::string>& complaints);
  void unset(Option& option);
  void unset_alternatives(const Option& option, const std::string& where);
  bool takes(const Option& option) const;  // also where this build lacks the value
  bool is_section(std::string_view name) const;
  std::string unknown(std::string_view key) const;
  std::optional<std::string> find_similar(std::string_view key) const;

  std::deque<Option> options_;
  std::map<std::string, std::string> synonyms_, absent_;
  std::vector<std::vector<std::vector<std::string>>> alternatives_;
  std::vector<std::string> set_;       // keys that set() has given
  std::vector<std::string> replaced_;  // lines for the user
  std::vector<std::string> expected_;  // keys
  bool takes_not_built_ = false;
  std::vector<std::string> unread_;  // keys that are taken
  std::vector<std::string> not_built_;
};

// UserError with all complaints, one per line; no-op where there are none.
void refuse(const std::vector<std::string>& complaints);

}  // namespace weft
