// cmd/main.cpp: one catch turns errors into messages and exit codes.
#include <sys/prctl.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include "base/error.h"
#include "base/printable.h"
#include "cmd/command.h"
#include "launch/rank_context.h"

namespace {

int report(const std::string& message, const std::string& hint, int exit_code) {
  // For ranks the supervisor reports the root cause, once.
  std::string text = weft::printable_message(message);
  if (!hint.empty()) text += "\n  hint: " + weft::printable_message(hint);
  if (weft::note_rank_failure(text)) return exit_code;
  std::fprintf(stderr, "error: %s\n", text.c_str());
  return exit_code;
}

int run(int argc, const char* const* argv) {
  const int exit_code = weft::run_command_line(argc, argv);
  if (std::fflush(stdout) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot write standard output");
  }
  return exit_code;
}

// The reader has closed the pipe (weft hash X | head): exit silently with the code that a shell
// reports for SIGPIPE, so that it is not mistaken for a check's result.
int report_system(const std::system_error& e) {
  if (e.code() == std::errc::broken_pipe) return 128 + SIGPIPE;
  return report(e.what(), "", 1);
}

}  // namespace

int main(int argc, char** argv) {
  // A closed pipe or socket is an error code, not a fatal signal, and so is a file beyond `ulimit
  // -f`.
  std::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_NAME, "weft");  // a rank is /proc/self/exe, and would be "exe" in ps and top
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    weft::note_build();
    return run(argc, argv);
  } catch (const weft::Error& e) {
    return report(e.what(), e.hint(), e.exit_code());
  } catch (const std::system_error& e) {
    return report_system(e);
  } catch (const std::bad_alloc&) {
    return report("out of memory", "`weft plan` shows how much a run needs", 1);
  } catch (const std::exception& e) {
    return report(e.what(), "this is a bug in weft; please report it with the command", 70);
  }
}
