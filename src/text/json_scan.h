// text/json_scan.h: a cursor over JSON text, for files too large to parse into a tree first.
//
// Qwen2's vocabulary is an object of 151,643 numbers: parse_json takes 40 ms, the cursor 5 ms
// (Neoverse-V1, CPU time).
// What raw_value() skips is not checked beyond its brackets and quotes: the caller passes it to
// parse_json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace weft {

class JsonScan {
 public:
  JsonScan(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  char peek();          // the next character that is not blank; 0 at the end
  bool take(char c);    // consumes it where it is next
  void expect(char c);  // UserError where it is not next
  void expect_end();    // nothing but blanks may follow
  // A string; the view is valid until the next call (strings with escapes) or as long as the text.
  std::string_view string();
  int64_t integer();
  std::string_view raw_value();  // the text of any value

  // for each entry of an object or array: while (scan.next(first, '}')) ...
  bool next(bool& first, char close);

  [[noreturn]] void fail(std::string_view wanted) const;

 private:
  void skip_blanks();
  uint32_t hex4();
  std::string_view string_with_escapes(size_t begin);

  std::string_view text_;
  std::string what_;
  size_t at_ = 0;
  std::string unescaped_;
};

}  // namespace weft
