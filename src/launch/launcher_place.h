// launch/launcher_place.h: which rank this process is, where torchrun, mpirun or the like started
// one process per rank (docs/design/0020-engines.md).
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace weft {

struct LauncherPlace {
  std::string launcher;  // "torchrun", "mpirun", "mpiexec"
  std::string size_variable;
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // among those of this machine
  int restart = 0;                     // how often the launcher has started all ranks again
  // Differs between launches, as far as the launcher reports it.
  std::string id;

  bool has_several_nodes() const { return local_size < size; }
};

using Environment = std::function<const char*(const char* name)>;  // as std::getenv
// Null where it is not set, or empty.
const char* find_variable(const Environment& get, const char* name);

// None where no launcher started this process. UserError where variables are missing, are no
// numbers or contradict each other.
std::optional<LauncherPlace> find_launcher_place(const Environment& get);
std::optional<LauncherPlace> find_launcher_place();  // of this process

}  // namespace weft
