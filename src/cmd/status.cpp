// cmd/status.cpp: weft status DIR [--json].
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/path.h"
#include "base/printable.h"
#include "base/suggest.h"
#include "cmd/command.h"
#include "cmd/status_text.h"
#include "train/local_copy.h"
#include "train/mirror.h"
#include "train/run_status.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// The names of runs below a folder, for one that asks for <storage> instead of <storage>/<name>.
std::vector<std::string> runs_below(const fs::path& dir) {
  constexpr size_t kMost = 1000;
  std::vector<std::string> found, names = folder_names(dir);
  names.resize(std::min(names.size(), kMost));
  for (const std::string& name : names) {
    try {
      if (holds_run(dir / name)) found.push_back(name);
    } catch (const Error&) {  // not readable: no candidate
    }
  }
  return found;
}

[[noreturn]] void refuse_no_run(const fs::path& dir) {
  constexpr const char* kHint =
      "wanted a run directory, <storage>/<name> of a run file, for example runs/first";
  const PathKind kind = path_kind(dir);
  if (kind == PathKind::kNothing) {
    const fs::path above = dir.has_parent_path() ? dir.parent_path() : ".";
    throw UserError(fmt::format("{} does not exist{}", dir.string(),
                                did_you_mean(dir.filename().string(), runs_below(above))),
                    kHint);
  }
  if (kind != PathKind::kFolder)
    throw UserError(fmt::format("{} is a file, not a run directory", dir.string()), kHint);
  const std::vector<std::string> names = runs_below(dir);
  throw UserError(
      fmt::format("{} holds no run", dir.string()),
      names.empty() ? kHint
                    : fmt::format("it holds runs: weft status {}", (dir / names.front()).string()));
}

// A run in an object store: its mirror, where this machine trains it; else what the store has.
RunStatus read_remote(const std::string& address) {
  const fs::path mirror = mirror_of(without_query(address), "");
  if (holds_run(mirror)) {
    RunStatus here = read_run_status(mirror);
    here.dir = address;
    if (here.is_live) return here;
  }
  const LocalCopy copy(address, LocalCopy::Part::kRecords);
  if (!holds_run(copy.path())) throw UserError(fmt::format("{} holds no run", address));
  RunStatus there = read_run_status(copy.path());
  there.dir = address;
  if (there.events.end) return there;
  there.state = "unknown";
  there.cause.clear();
  there.note =
      "no process of this machine trains it; what is shown was stored some seconds after it "
      "happened. Ask on the machine that trains, which has a status of its ranks";
  return there;
}

}  // namespace

RunCommand add_status(CommandOptions& app) {
  struct Words {
    std::string dir;
    bool json = false;
  };
  auto w = std::make_shared<Words>();
  app.add_option("DIR", w->dir, "run directory, or s3://bucket/prefix/name")->required();
  app.add_flag("--json", w->json, "print one JSON object");
  return [w] {
    const bool is_there = is_remote(w->dir);
    if (!is_there && !holds_run(w->dir)) refuse_no_run(w->dir);
    const RunStatus status = is_there ? read_remote(w->dir) : read_run_status(w->dir);
    if (w->json) {
      fmt::print("{}\n", printable_json(status.to_json().dump(2)));
    } else {
      fmt::print("{}", printable(status_text(status)));
    }
    return 0;
  };
}

}  // namespace weft
