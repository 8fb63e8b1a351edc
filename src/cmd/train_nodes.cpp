// cmd/train_nodes.cpp: the run's secret and marker, then its supervisor.
#include "cmd/train_nodes.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/path.h"
#include "cmd/train_memory.h"
#include "config/elastic.h"
#include "config/launch_env.h"
#include "launch/node_job.h"
#include "launch/node_start_check.h"
#include "net/interface.h"
#include "net/secret.h"
#include "planning/node_fit.h"
#include "track/run_files.h"
#include "train/mirror.h"
#include "train/run_dir.h"
#include "train/run_lock.h"

namespace weft {
namespace fs = std::filesystem;
namespace {

// One of an earlier start is used again, so that agents may join again.
fs::path provide_secret(const fs::path& dir, const fs::path& given) {
  if (!given.empty()) return given;
  const fs::path path = dir / kSecretFile;
  if (path_kind(path) == PathKind::kNothing) Secret::random().write_new_file(path);
  return path;
}

// Before the run directory is made. UserError where it is no secret.
fs::path check_secret(const std::string& given) {
  if (given.empty()) return {};
  if (path_kind(given) == PathKind::kNothing)
    throw UserError(
        fmt::format("--secret-file {} does not exist", given),
        "leave it out: the first start makes RUN_DIR/secret. Or make one with `(umask 077; head -c "
        "32 /dev/urandom | base64 > FILE)`");
  const fs::path path = fs::absolute(given);
  static_cast<void>(Secret::from_file(path));
  return path;
}

// A file that all nodes must see; removed at the end.
class Marker {
 public:
  explicit Marker(const fs::path& dir) : path_(dir / kNodesMarker) {
    for (const uint8_t byte : random_nonce()) text_ += fmt::format("{:02x}", byte);
    write_file_atomic(path_, text_);
  }
  ~Marker() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  Marker(const Marker&) = delete;
  Marker& operator=(const Marker&) = delete;
  const fs::path& path() const { return path_; }
  const std::string& text() const { return text_; }

 private:
  fs::path path_;
  std::string text_;
};

void add_layouts(const RunFile& file, bool is_forced, NodeJobOptions* nodes) {
  const LaunchConfig& launch = file.config().launch;
  nodes->fewest_nodes =
      static_cast<int>(launch.elastic ? std::max<int64_t>(launch.min_nodes, 1) : launch.nodes);
  for (const ElasticLayout& layout : saving_layouts(file.config()))
    nodes->layouts.push_back({static_cast<int>(layout.nodes), layout.dp});
  nodes->fits = [&file, is_forced](const NodeLayout& layout, int64_t freed_bytes) {
    const auto measure = [freed_bytes] {
      MemoryBounds bounds = bounds_of_machine();
      if (bounds.machine.is_bounded()) bounds.machine.bytes += freed_bytes;
      return bounds;
    };
    return fit_nodes(file.config(), layout.num_nodes,
                     {.needs_snapshots = asks_for_snapshots(file),
                      .needs_async = file.was_given("checkpoint.async"),
                      .is_forced = is_forced,
                      .measure = measure});
  };
}

// So that variables which libraries read before main() apply on every node. A channel is not
// encrypted (docs/design/0017-channels.md): secrets are left to the ranks, which set them from the
// run file.
void add_launch_env(const std::map<std::string, std::string>& env, JobOptions* job) {
  for (const auto& [name, value] : env) {
    if (!is_secret_name(name)) job->env[name] = value;
  }
}

void report_elastic(const RunConfig& c) {
  constexpr size_t kMostShown = 6;
  const std::vector<ElasticLayout> layouts = elastic_layouts(c);
  std::string others;
  for (size_t i = 1; i < std::min(layouts.size(), 1 + kMostShown); ++i) {
    const NodeLayout layout{static_cast<int>(layouts[i].nodes), layouts[i].dp};
    others += fmt::format("{}{}", i == 1 ? "" : ", ", layout.describe());
  }
  if (layouts.size() > 1 + kMostShown) others += " ...";
  log_info("elastic: where a node is lost and no spare is there, it continues with {}", others);
}

// text: from, to, why and source, one line each. Rank 0 may append meanwhile.
void write_layout_event(const fs::path& dir, const std::string& text) {
  const size_t to = text.find('\n') + 1, why = text.find('\n', to) + 1,
               source = text.find('\n', why) + 1;
  try {
    EventWriter(dir / "events.jsonl", 0)
        .write("layout", {{"from", Json(text.substr(0, to - 1))},
                          {"to", Json(text.substr(to, why - to - 1))},
                          {"why", Json(text.substr(why, source - why - 1))},
                          {"source", source == text.size() ? Json() : Json(text.substr(source))}});
  } catch (const Error& e) {
    log_warning("the change of layout could not be recorded: {}", e.what());
  }
}

}  // namespace

int run_on_nodes(const RunFile& file, const TrainOptions& options, const NodesRun& run) {
  const RunConfig& c = file.config();
  const fs::path dir = fs::absolute(run_dir_of(c, options));
  const fs::path given_secret = check_secret(run.secret_file);
  const std::string host = address_of_interface(c.launch.interface);
  // Until the end, also between generations; its lease until rank 0 starts and takes one.
  RunLock lock(dir);
  const Marker marker(dir);
  NodeJobOptions nodes;
  nodes.job = run.job;
  add_launch_env(c.launch.env, &nodes.job);
  nodes.num_nodes = static_cast<int>(c.launch.nodes);
  nodes.node_names = run.node_names;
  nodes.host = host;
  nodes.port = std::to_string(c.launch.port);
  nodes.secret_file = provide_secret(dir, given_secret);
  nodes.directory = fs::current_path();
  nodes.files[options.run_file] = hash_of_file(options.run_file);
  nodes.marker = marker.path();
  nodes.marker_text = marker.text();
  nodes.lock_fd = lock.fd();
  nodes.join_ms = 1000 * c.launch.join_timeout_s;
  nodes.min_nodes = static_cast<int>(c.launch.min_nodes);
  if (!nodes.job.has_snapshots && c.launch.max_restarts != 0)
    log_info("several nodes: where a rank dies, all continue from the newest checkpoint");
  add_layouts(file, run.is_forced, &nodes);
  if (c.launch.elastic) report_elastic(c);
  return run_node_job(nodes, [&](const char* event, int rank, const std::string& text) {
    if (std::string_view(event) == "started") lock.release_lease();
    if (std::string_view(event) == "layout") write_layout_event(dir, text);
    run.sink(event, rank, text);
  });
}

}  // namespace weft
