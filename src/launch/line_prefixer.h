// launch/line_prefixer.h: a rank's output, line by line, with its name before each line.
#pragma once

#include <functional>
#include <string>

namespace weft {

// Reads a non-blocking pipe and writes whole lines, one write per line, so that lines of several
// ranks do not mix.
class LinePrefixer {
 public:
  using Sink = std::function<void(const std::string& line)>;
  LinePrefixer(int from, Sink sink) : from_(from), sink_(std::move(sink)) {}
  LinePrefixer(int from, int to, std::string prefix);
  ~LinePrefixer();
  LinePrefixer(const LinePrefixer&) = delete;
  LinePrefixer& operator=(const LinePrefixer&) = delete;

  int fd() const { return from_; }  // -1: nothing more will come
  void pump();                      // what is available now
  void finish();                    // that, and an unterminated last line
  const std::string& last_line() const { return last_line_; }

 private:
  void take_lines();
  void write_line(const std::string& line);

  int from_;
  Sink sink_;
  std::string pending_, last_line_;
};

}  // namespace weft
