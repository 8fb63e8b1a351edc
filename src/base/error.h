// base/error.h: the three kinds of failure, and the two checks that raise them.
//
// require() checks user input, ensure() our own invariants. A message says what was given and what
// was expected; the hint says what to do.
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace weft {

// One catch, in main, turns these into exit codes.
class Error : public std::runtime_error {
 public:
  Error(std::string message, std::string hint, int exit_code)
      : std::runtime_error(std::move(message)), hint_(std::move(hint)), exit_code_(exit_code) {}
  const std::string& hint() const { return hint_; }
  int exit_code() const { return exit_code_; }

 private:
  std::string hint_;
  int exit_code_;
};

class UserError : public Error {  // exit 2: the input is wrong
 public:
  explicit UserError(std::string message, std::string hint = "")
      : Error(std::move(message), std::move(hint), 2) {}
};

class RunError : public Error {  // exit 1: the run could not be finished (NaN, disk full)
 public:
  explicit RunError(std::string message, std::string hint = "")
      : Error(std::move(message), std::move(hint), 1) {}
};

class PeerError : public Error {  // exit 75: another rank, a node or a GPU failed
 public:
  explicit PeerError(std::string message, std::string hint = "")
      : Error(std::move(message), std::move(hint), 75) {}
};

class BugError : public Error {  // exit 70: an internal invariant is broken
 public:
  explicit BugError(std::string message) : Error(std::move(message), "", 70) {}
};

[[noreturn]] void throw_bug(const char* file, int line, const std::string& message);

// require(ok, "got {}, wanted {}", a, b): the user's input is wrong.
template <typename... Args>
void require(bool ok, fmt::format_string<Args...> message, Args&&... args) {
  if (!ok) throw UserError(fmt::format(message, std::forward<Args>(args)...));
}

// ensure(ok, "..."): an internal invariant does not hold.
inline void ensure(bool ok, const std::string& message, const char* file = __builtin_FILE(),
                   int line = __builtin_LINE()) {
  if (!ok) throw_bug(file, line, message);
}

}  // namespace weft
