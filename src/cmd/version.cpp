// cmd/version.cpp: what this program was built from; CMake defines the WEFT_ names for this file
// only.
#include "base/version.h"

#include <fmt/core.h>

#include "cmd/command.h"

namespace weft {

void note_build() { set_build_commit(WEFT_COMMIT); }

std::string version_text() {
  return fmt::format("weft {}\ncommit {}\ncompiler {}\nback ends {}", WEFT_VERSION, WEFT_COMMIT,
                     WEFT_COMPILER, WEFT_BACK_ENDS);
}

Json version_json() {
  return Json::Object{{"version", WEFT_VERSION},
                      {"commit", WEFT_COMMIT},
                      {"compiler", WEFT_COMPILER},
                      {"back_ends", WEFT_BACK_ENDS}};
}

}  // namespace weft
