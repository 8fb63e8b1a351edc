// launch/slurm_node_list.cpp: names with ranges of numbers in brackets.
#include "launch/slurm_node_list.h"

#include <charconv>
#include <cstdint>

#include "base/error.h"
#include "base/printable.h"

namespace weft {
namespace {

constexpr size_t kMaxNodes = 65536, kMaxName = 1024, kMaxDigits = 9;

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  std::vector<std::string> read() {
    check(!text_.empty(), "it is empty");
    do read_name();
    while (take(','));
    check(at_ == text_.size(), "unexpected character");
    return std::move(all_);
  }

 private:
  void check(bool ok, const char* why) const {
    require(ok, "\"{}\" is not a list of Slurm nodes: {} at character {}",
            printable_line(std::string(text_.substr(0, 200))), why, at_ + 1);
  }

  bool take(char wanted) {
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  static bool is_name_char(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  }

  // One name, or one pattern: every part multiplies the names so far.
  void read_name() {
    std::vector<std::string> names = {""};
    const size_t begin = at_;
    for (;;) {
      const size_t start = at_;
      while (at_ < text_.size() && is_name_char(text_[at_])) ++at_;
      append(&names, {std::string(text_.substr(start, at_ - start))});
      if (!take('[')) break;
      append(&names, read_ranges());
    }
    check(at_ > begin, "a name is missing");
    check(all_.size() + names.size() <= kMaxNodes, "too many nodes");
    all_.insert(all_.end(), names.begin(), names.end());
  }

  void append(std::vector<std::string>* names, const std::vector<std::string>& parts) const {
    check(names->size() * parts.size() <= kMaxNodes, "too many nodes");
    std::vector<std::string> longer;
    longer.reserve(names->size() * parts.size());
    for (const std::string& name : *names) {
      for (const std::string& part : parts) {
        check(name.size() + part.size() <= kMaxName, "too long a name");
        longer.push_back(name + part);
      }
    }
    *names = std::move(longer);
  }

  // After "[": "01-04,7]".
  std::vector<std::string> read_ranges() {
    std::vector<std::string> numbers;
    do read_range(&numbers);
    while (take(','));
    check(take(']'), "a ] is missing");
    return numbers;
  }

  void read_range(std::vector<std::string>* numbers) {
    const std::string_view first = read_digits();
    const std::string_view last = take('-') ? read_digits() : first;
    const int64_t from = value(first), to = value(last);
    check(from <= to, "a range ends before it begins");
    check(numbers->size() + static_cast<size_t>(to - from) < kMaxNodes, "too many nodes");
    for (int64_t i = from; i <= to; ++i) {
      const std::string digits = std::to_string(i);
      const size_t zeros = first.size() > digits.size() ? first.size() - digits.size() : 0;
      numbers->push_back(std::string(zeros, '0') + digits);
    }
  }

  std::string_view read_digits() {
    const size_t start = at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    check(at_ > start, "a number is missing");
    check(at_ - start <= kMaxDigits, "too long a number");
    return text_.substr(start, at_ - start);
  }

  static int64_t value(std::string_view digits) {
    int64_t number = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return number;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<std::string> all_;
};

}  // namespace

std::vector<std::string> expand_node_list(std::string_view text) { return Reader(text).read(); }

}  // namespace weft
