// cmd/hash.cpp: weft hash PATH.

#include "base/error.h"
#include "base/printable.h"
#include "checkpoint/digest.h"
#include "cmd/command.h"
#include "train/local_copy.h"

namespace weft {

RunCommand add_hash(CommandOptions& app) {
  const auto path = std::make_shared<std::string>();
  app.add_option("PATH", *path, "checkpoint, run directory, model folder, file of tensors")
      ->required();
  return [path] {
    const LocalCopy copy(*path);
    const LogicalModel model = open_logical(copy.path());
    require_all_read(model);
    const ModelDigest digest = digest_model(model);
    for (const std::string& line : digest.lines) fmt::print("{}\n", printable_line(line));
    fmt::print("weights {}\n", digest.weights);
    if (!digest.states.empty()) fmt::print("states {}\n", digest.states);
    return 0;
  };
}

}  // namespace weft
