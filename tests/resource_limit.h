// tests/resource_limit.h: a limit of this process for the time of a scope, to make system calls
// fail.
#pragma once

#include <sys/resource.h>

#include <csignal>

namespace weft::testing {

// RLIMIT_FSIZE: writes beyond `value` bytes fail, as on a full disk. RLIMIT_NOFILE: no descriptor
// from `value` on is free.
class ResourceLimit {
 public:
  ResourceLimit(int kind, rlim_t value) : kind_(kind) {
    ::getrlimit(limit(), &old_);
    rlimit now = old_;
    now.rlim_cur = value;
    old_signal_ = std::signal(SIGXFSZ, SIG_IGN);  // or a write would end the process
    ::setrlimit(limit(), &now);
  }
  ~ResourceLimit() {
    ::setrlimit(limit(), &old_);
    std::signal(SIGXFSZ, old_signal_);
  }
  ResourceLimit(const ResourceLimit&) = delete;
  ResourceLimit& operator=(const ResourceLimit&) = delete;

 private:
  __rlimit_resource_t limit() const { return static_cast<__rlimit_resource_t>(kind_); }

  int kind_;
  rlimit old_{};
  void (*old_signal_)(int);
};

}  // namespace weft::testing
