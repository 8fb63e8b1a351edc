// launch/node_start_check.cpp: directory, files, marker.
#include "launch/node_start_check.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"

namespace weft {
namespace {

constexpr size_t kMaxFile = 16 << 20, kMaxMarker = 4096;

void check_marker(const NodeStart& start) {
  if (start.marker.empty()) return;
  std::optional<std::string> text;
  try {
    text = read_file(start.marker, kMaxMarker);
  } catch (const Error&) {
    text.reset();
  }
  if (text == start.marker_text) return;
  throw UserError(
      fmt::format("storage is not shared: {} {}", start.marker,
                  !text ? "does not exist here, but the supervisor has written it"
                        : "has another text here than on the supervisor's node"),
      "checkpoints of all ranks go to one folder: mount the same storage on every node; with "
      "storage: s3://... this is the run's mirror, which checkpoint.fallback puts there");
}

}  // namespace

std::string hash_of_file(const std::string& path) {
  return hash_hex(hash_text(read_file(path, kMaxFile)));
}

void check_node_start(const NodeStart& start) {
  if (::chdir(start.directory.c_str()) != 0) {
    throw UserError(fmt::format("the run's working directory {} cannot be entered here: {}",
                                start.directory, std::strerror(errno)),
                    "every node needs the run's files under the same path");
  }
  for (const auto& [path, hash] : start.files) {
    if (hash_of_file(path) == hash) continue;
    throw UserError(fmt::format("{} differs from the supervisor's file of that name", path),
                    "every node needs the same run file");
  }
  check_marker(start);
}

}  // namespace weft
