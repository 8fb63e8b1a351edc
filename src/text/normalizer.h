// text/normalizer.h: the steps that a tokenizer applies before it splits, in order.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

class Normalizer {
 public:
  // A step returns the new text, or none where it is unchanged.
  using Step = std::function<std::optional<std::string>(std::string_view)>;
  void add(std::string name, Step step) { steps_.push_back({std::move(name), std::move(step)}); }
  bool empty() const { return steps_.empty(); }

  std::optional<std::string> apply(std::string_view text) const;
  std::string describe() const;  // "NFC, Lowercase"; empty: none

 private:
  struct Named {
    std::string name;
    Step step;
  };
  std::vector<Named> steps_;
};

// Steps that need no tables.
Normalizer::Step prepend_step(std::string prefix);  // not before empty text
Normalizer::Step replace_step(std::string from, std::string to);
Normalizer::Step replace_blanks_step(std::string to);  // every run of two or more blanks
Normalizer::Step strip_step(bool left, bool right);    // white space

}  // namespace weft
