// tests/e2e/program.h: the program as a child process: started, watched, signalled, reaped.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/io/temporary_folder.h"

namespace weft::testing {

struct Ended {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;      // that ended it
  std::string out, err;
};

struct StartOptions {
  rlim_t file_bytes = RLIM_INFINITY;  // largest file it may write; beyond it sees a full disk
  std::map<std::string, std::string> env = {};  // added to ours
  rlim_t address_bytes = RLIM_INFINITY;         // that it may map
  rlim_t open_files = RLIM_INFINITY;            // at a time
};

class Program {
 public:
  explicit Program(const std::vector<std::string>& words, const StartOptions& options = {});
  ~Program();  // kills what still runs
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void send(int signal) const;
  bool is_running();
  // Until the condition holds, the program ends or the deadline passes; whether it held.
  bool wait_until(const std::function<bool()>& holds, double seconds = 60);
  Ended wait(double seconds = 120);  // a failure, and the end of the program, at the deadline
  pid_t pid() const { return pid_; }
  int64_t peak_anonymous_bytes() const { return peak_anonymous_; }  // seen while waiting

 private:
  void poll_memory();

  TemporaryFolder folder_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool is_reaped_ = false;
  int64_t peak_anonymous_ = 0;
};

Ended run_to_end(const std::vector<std::string>& words, const StartOptions& options = {});

std::string slurp(const std::filesystem::path& path);
bool contains(const std::string& text, const std::string& part);
// Every part is in the text; a failure names the missing one.
void expect_parts(const std::string& text, const std::vector<std::string>& parts);

}  // namespace weft::testing
