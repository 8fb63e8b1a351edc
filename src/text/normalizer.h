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
  // A step returns the new text, or none where the text is unchanged. A step that may expand the
  // text stops once the result is longer than `most`.
  using Step = std::function<std::optional<std::string>(std::string_view)>;
  using BoundedStep = std::function<std::optional<std::string>(std::string_view, size_t most)>;
  void add(std::string name, Step step);
  void add_bounded(std::string name, BoundedStep step) {
    steps_.push_back({std::move(name), std::move(step)});
  }
  bool empty() const { return steps_.empty(); }

  // None where the text is unchanged. UserError naming the step whose result is longer than `most`
  // bytes.
  std::optional<std::string> apply(std::string_view text, size_t most) const;
  // Maximum length of a normalized text, far above what usual normalizers produce.
  static size_t most_bytes(size_t text_bytes) { return (size_t{1} << 20) + 16 * text_bytes; }
  std::string describe() const;  // "NFC, Lowercase"; empty: none

 private:
  struct Named {
    std::string name;
    BoundedStep step;
  };
  std::vector<Named> steps_;
};

// Steps that need no tables.
Normalizer::Step prepend_step(std::string prefix);  // not before empty text
Normalizer::BoundedStep replace_step(std::string from, std::string to);
Normalizer::BoundedStep replace_blanks_step(std::string to);  // every run of two or more blanks
Normalizer::Step strip_step(bool left, bool right);           // white space

}  // namespace weft
