// tests/launch/spawn.h: a program as a child, with its output in files.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

namespace weft::testing {

inline void redirect(const std::string& path, int to) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (fd < 0 || ::dup2(fd, to) < 0) ::_exit(126);
}

// words[0] is the program. `prepare` runs in the child, before the program does.
inline pid_t spawn(std::vector<std::string> words, const std::string& out, const std::string& err,
                   const std::function<void()>& prepare = {}) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  redirect("/dev/null", 0);
  redirect(out, 1);
  redirect(err, 2);
  if (prepare) prepare();
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

}  // namespace weft::testing
