// kernel/cpu/workspace.cpp: std templates are instantiated here, once, and in no instruction level.
#include "kernel/cpu/workspace.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/error.h"

namespace weft {

void check_workspace(const char* op, size_t wanted, size_t got) {
  if (wanted <= got) return;
  throw BugError(fmt::format("{} needs {} bytes of workspace, got {}", op, wanted, got));
}

void sort_keys(uint64_t* keys, int64_t n) { std::sort(keys, keys + n); }

}  // namespace weft
