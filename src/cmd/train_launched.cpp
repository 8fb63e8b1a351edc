// cmd/train_launched.cpp: checks that every rank makes by itself, the rendezvous, then training.
#include "cmd/train_launched.h"

#include "base/error.h"
#include "base/log.h"
#include "cmd/train_memory.h"
#include "comm/gloo/gloo.h"
#include "launch/rendezvous.h"
#include "launch/rendezvous_file.h"
#include "net/interface.h"
#include "planning/backend.h"
#include "planning/layout.h"
#include "planning/rank_plans.h"
#include "train/solo_status.h"

namespace weft {
namespace {

void check_size(const RunConfig& c, const LauncherPlace& place) {
  const int64_t wanted = c.parallel.dp * c.parallel.tp;
  if (wanted == place.size) return;
  throw UserError(fmt::format("{} has started {} ranks ({}), but parallel.dp={} x parallel.tp={} "
                              "needs {}",
                              place.launcher, place.size, place.size_variable, c.parallel.dp,
                              c.parallel.tp, wanted),
                  fmt::format("start {} ranks, or set parallel.dp={}", wanted,
                              std::max<int64_t>(place.size / c.parallel.tp, 1)));
}

// What the first start was asked to discard is now this run's.
void check_restart(const TrainOptions& options, const LauncherPlace& place) {
  if (place.restart == 0 || (!options.overwrite && options.resume != "never")) return;
  throw UserError(
      fmt::format("{} has started the ranks again (TORCHELASTIC_RESTART_COUNT={}), and {} would "
                  "discard what the run has saved",
                  place.launcher, place.restart,
                  options.overwrite ? "--overwrite" : "--resume never"),
      "start the run again without it");
}

void check_storage(const RunConfig& c, const TrainOptions& options, const LauncherPlace& place) {
  const std::string address = run_address_of(c, options);
  require(address.empty() || !place.has_several_nodes(),
          "the run directory is {}: ranks that {} starts on several machines need a folder that "
          "all of them share",
          address, place.launcher);
}

std::shared_ptr<Comm> connect(const RunConfig& c, const LauncherPlace& place,
                              const Rendezvous& rendezvous) {
  GlooOptions gloo;
  gloo.rank = place.rank;
  gloo.num_ranks = place.size;
  gloo.store = rendezvous.endpoint();
  gloo.host = address_of_interface(c.launch.interface);
  gloo.secret = rendezvous.secret();
  return make_gloo_comm(gloo);
}

RendezvousOptions rendezvous_options(const RunConfig& c, const TrainOptions& options) {
  RendezvousOptions made;
  made.path = rendezvous_path(run_dir_of(c, options));
  made.host = address_of_interface(c.launch.interface);
  made.deadline_ms = 1000 * c.launch.join_timeout_s;
  return made;
}

}  // namespace

std::vector<std::string> launcher_keys(const LauncherPlace& place) {
  if (!place.has_several_nodes()) return {};
  require(place.size % place.local_size == 0,
          "{} has started {} ranks, {} of them on this machine: all machines need as many",
          place.launcher, place.size, place.local_size);
  return {fmt::format("launch.nodes={}", place.size / place.local_size)};
}

int train_launched(RunFile& file, TrainOptions options, bool is_forced,
                   const LauncherPlace& place) {
  const RunConfig& c = file.config();
  check_size(c, place);
  check_restart(options, place);
  check_storage(c, options, place);
  require(!c.launch.elastic,
          "launch.elastic is true, but {} has started the ranks and decides what follows a lost "
          "node: leave it out, or start the nodes with weft agent",
          place.launcher);
  check_layout(c);
  check_backend(c);
  file.take_no_snapshots(fmt::format("ranks are started by {}", place.launcher));
  resolve_async(&file, check_memory(c, is_forced).async);
  log_info("{} ranks, started by {}: where one dies, all end with 75, and a new start resumes",
           place.size, place.launcher);
  Rendezvous rendezvous(place, rendezvous_options(c, options));
  try {
    const std::shared_ptr<Comm> all = connect(c, place, rendezvous);
    RankPlace rank;
    rank.rank = place.rank;
    rank.threads = choose_threads(c.launch, place.local_size);
    rank.launched = {all, place.local_rank};
    // Of all ranks only this one is known here.
    return place.rank == 0 ? train_with_status(file, options, rank, std::nullopt)
                           : train_rank(file, options, rank);
  } catch (const PeerError&) {
    throw;  // the others know
  } catch (const std::exception& e) {
    rendezvous.abort(fmt::format("rank {}: {}", place.rank, e.what()));
    throw;
  }
}

}  // namespace weft
