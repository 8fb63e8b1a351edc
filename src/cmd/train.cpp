// cmd/train.cpp: weft train: one rank here, or a supervisor and its ranks.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "checkpoint/list.h"
#include "cmd/command.h"
#include "cmd/slurm_task.h"
#include "cmd/train_launched.h"
#include "cmd/train_memory.h"
#include "cmd/train_nodes.h"
#include "cmd/train_slurm.h"
#include "comm/call.h"
#include "config/launch_env.h"
#include "launch/cores.h"
#include "launch/job.h"
#include "launch/lease_watch.h"
#include "launch/rank_context.h"
#include "launch/rendezvous_file.h"
#include "launch/slurm_place.h"
#include "net/interface.h"
#include "planning/backend.h"
#include "planning/memory_check.h"
#include "planning/precision.h"
#include "planning/snapshot_bytes.h"
#include "train/engine.h"
#include "train/fault_events.h"
#include "train/finished_run.h"
#include "train/signals.h"
#include "train/solo_status.h"
#include "train/trainer.h"

namespace weft {
namespace {

constexpr int kLostPeers = 75;

// It appears in messages, logs and commands to copy.
void check_run_dir(const std::string& dir) {
  if (printable_line(dir) == dir) return;
  throw UserError(
      fmt::format(
          "--run-dir \"{}\" has a line end, a control character or bytes that are not UTF-8",
          printable_line(dir)),
      "use a plain folder name");
}

// Ranks wait for each other in every collective, so that one too many slows down all of them.
void warn_of_cores(const LaunchConfig& c, int64_t ranks) {
  const auto cores = static_cast<int64_t>(usable_cores().size());
  const int64_t threads = choose_threads(c, static_cast<int>(ranks));
  if (ranks * threads <= cores) return;
  const auto several = [](int64_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  log_warning(
      "{} x {} on {}: they take turns, and steps take longer; fewer ranks (parallel.dp, "
      "parallel.tp) or threads (launch.threads) are faster here",
      several(ranks, "rank"), several(threads, "thread"), several(cores, "core"));
}

// What all ranks that are started again continue from.
std::string describe_saved(const std::filesystem::path& dir) {
  try {
    const std::vector<std::filesystem::path> saved = list_checkpoints(dir);
    if (!saved.empty()) return fmt::format("the newest checkpoint, {}", saved.back().string());
    return "where it started: nothing is saved yet";
  } catch (const Error&) {  // a disk that cannot be read now
    return "the newest checkpoint";
  }
}

bool has_checkpoint(const std::filesystem::path& dir) {
  try {
    return !list_checkpoints(dir).empty();
  } catch (const Error&) {
    return false;
  }
}

struct TrainWords {
  std::string run, engine = "local", secret_file;
  std::vector<std::string> sets;
  std::vector<std::string> more;  // arguments of the ranks, which the command line does not have
  int64_t nodes = 0;
  bool force = false, waits = false;
  TrainOptions options;
};

// overrides: of the run file, for all ranks alike.
JobOptions job_of(const RunConfig& c, const TrainWords& w,
                  const std::vector<std::string>& overrides) {
  JobOptions job;
  job.num_ranks = static_cast<int>(c.ranks_per_node());
  job.argv = command_words();
  job.argv.insert(job.argv.end(), overrides.begin(), overrides.end());
  job.argv.insert(job.argv.end(), w.more.begin(), w.more.end());
  job.threads = static_cast<int>(c.launch.threads);
  job.max_restarts = c.launch.max_restarts;
  job.restart_reset_steps = c.launch.restart_reset_steps;
  job.watches_hangs = true;
  job.describe_call = describe_latest;
  job.has_snapshots = has_snapshot_slots(c);
  if (c.launch.hang_timeout_s > 0) job.deadline_ms = 1000 * c.launch.hang_timeout_s;
  return job;
}

// Wrong input is reported once, before any rank starts. slurm: null where it is no task of srun.
int supervise_train(RunFile& file, const TrainWords& w, const StopSignals& signals,
                    SlurmSupervisor* slurm) {
  const TrainOptions& options = w.options;
  const RunConfig& c = file.config();
  check_layout(c);
  check_backend(c);
  std::optional<int64_t> planned_bytes;
  const std::vector<std::string> overrides = resolve_copies(&file, w.force, &planned_bytes);
  // Ranks that share memory need no network: an interface is looked up only where one was given.
  if (file.was_given("launch.interface")) {
    static_cast<void>(address_of_interface(c.launch.interface));
  }
  warn_of_cores(c.launch, c.ranks_per_node());
  JobOptions job = job_of(c, w, overrides);
  const std::filesystem::path dir = run_dir_of(c, options);
  const auto before = last_event_time(dir);
  StatusFile status(dir, planned_bytes);
  EarlyEvents early;
  job.on_status = [&](const JobStatus& now) {
    if (now.is_opened) early.note_opened();
    status.write(now);
  };
  job.describe_saved = [&] { return describe_saved(dir); };
  std::optional<RunFailure> failure;
  std::vector<HungRank> hung;  // not recorded yet
  std::vector<int> died_too;   // likewise
  bool has_died = false;       // a rank or a node
  const EventSink sink = [&](const char* event, int rank, const std::string& text) {
    signals.hand_over();  // the job installs its own handlers before its first event
    has_died |= rank >= 0 &&
                (std::string_view(event) == "failed" || std::string_view(event) == "node_lost");
    if (std::string_view(event) == "failed") failure = RunFailure{"rank failed", rank, text};
    if (std::string_view(event) == "cut_off") failure = RunFailure{"failed", rank, text};
    if (std::string_view(event) == "hung") hung.push_back(report_hang(dir, rank, text));
    if (std::string_view(event) == "died_too") died_too.push_back(rank);
    if (std::string_view(event) == "died")
      early.record(
          [=, death = RankDeath{rank, text, std::exchange(died_too, {}), std::exchange(hung, {})}](
              const std::string& time) { report_death(dir, death, time); });
    const bool is_unfit = std::string_view(event) == "node_unfit";
    if (std::string_view(event) == "node_lost" || is_unfit)
      early.record([=, ranks = is_unfit ? 0 : job.num_ranks](const std::string& time) {
        report_node_loss(dir, rank, ranks, text, time);
      });
    if (std::string_view(event) == "recovery_failed")
      early.record(
          [=](const std::string& time) { report_recovery_failure(dir, rank, text, time); });
    if (std::string_view(event) == "listening" && slurm)
      slurm->note_listening(
          text, w.secret_file.empty() ? dir / "secret" : std::filesystem::path(w.secret_file));
  };
  const std::vector<std::string> names = slurm ? slurm->nodes() : std::vector<std::string>();
  const int code = c.launch.nodes > 1
                       ? run_on_nodes(file, options, {job, sink, w.secret_file, w.force, names})
                       : run_local_job(job, sink);
  // A rejected start has written nothing, and the directory may belong to another run, also one of
  // that name.
  const bool was_opened = last_event_time(dir) != before;
  const bool may_begin =
      code == kLostPeers && !options.overwrite && run_address_of(c, options).empty();
  if (failure &&
      (was_opened || (may_begin && begin_events(dir, file.resolved(), options.convert_states)))) {
    early.note_opened();
    report_failure(dir, *failure, hung);
  }
  status.end(code, failure ? failure->text : "");
  if (code == kLostPeers && has_died && job.max_restarts == 0)
    log_info("launch.max_restarts is 0: with a larger value a run survives the death of a rank");
  if (code == kLostPeers)
    log_info("the same command {} {}",
             has_checkpoint(dir) ? "resumes from the newest checkpoint of"
                                 : "starts again; there is no checkpoint yet in",
             dir.string());
  return code;
}

// All ranks are started again, after the first ones have saved something.
void continue_run(TrainOptions* options) {
  options->overwrite = false;
  options->resume = "auto";
}

void check_words(const TrainWords& w) {
  if (w.engine == "ray")
    throw UserError("--engine ray needs Python with Ray, and this program was started without",
                    "pip install the wheel of `make wheel` next to Ray, and use its command `weft` "
                    "(docs/ray.md)");
  require(w.engine == "local" || w.engine == "slurm",
          "--engine {} is not known; available: local, slurm, ray", w.engine);
  require(!w.waits || w.engine == "slurm", "--wait is for --engine slurm, whose job it follows");
  check_run_dir(w.options.run_dir);
}

// What a launcher or Slurm decides.
void add_keys(const std::optional<LauncherPlace>& launched, const std::optional<SlurmPlace>& task,
              TrainWords* w) {
  if (w->nodes > 0) w->sets.push_back(fmt::format("launch.nodes={}", w->nodes));
  if (launched) {
    for (const std::string& key : launcher_keys(*launched)) w->sets.push_back(key);
  }
  if (!task) return;
  require(w->nodes == 0 || w->nodes == static_cast<int64_t>(task->nodes.size()),
          "--nodes {}, but srun has started this on {} nodes", w->nodes, task->nodes.size());
  w->sets.push_back(fmt::format("launch.nodes={}", task->nodes.size()));
  w->more = {"--set", w->sets.back()};
}

int train_alone(RunFile& file, const TrainWords& w) {
  check_backend(file.config());
  const CopiesShortage shortage = check_memory(file.config(), w.force);
  resolve_async(&file, shortage.async);
  warn_of_cores(file.config().launch, 1);
  const RankPlace alone{0, choose_threads(file.config().launch), nullptr};
  return train_with_status(file, w.options, alone, shortage.planned_bytes);
}

int train_here(RunFile& file, const TrainWords& w, const StopSignals& signals,
               SlurmSupervisor* slurm = nullptr) {
  if (report_if_finished(file, w.options)) return 0;
  if (w.engine == "slurm" && !is_slurm_task()) return train_by_slurm(file, w.options, w.waits);
  require(w.engine != "slurm" || slurm || file.config().launch.nodes == 1,
          "--engine slurm with launch.nodes={}: this process is a task that srun has started alone "
          "(SLURM_STEP_ID is set); run the command outside of srun, or start one task per node",
          file.config().launch.nodes);
  const ParallelConfig& p = file.config().parallel;
  return p.dp * p.tp > 1 ? supervise_train(file, w, signals, slurm) : train_alone(file, w);
}

// One of the tasks of srun: the first supervises, the others are its agents.
int train_as_task(RunFile& file, const TrainWords& w, const StopSignals& signals,
                  const SlurmPlace& task) {
  const std::filesystem::path path = rendezvous_path(run_dir_of(file.config(), w.options));
  if (task.task > 0) return run_slurm_agent(task, path, 1000 * file.config().launch.join_timeout_s);
  SlurmSupervisor slurm(task, path);
  try {
    const int code = train_here(file, w, signals, &slurm);
    slurm.note_end(code);
    return code;
  } catch (const Error& e) {
    slurm.note_end(e.exit_code());
    throw;
  }
}

int train_one(RunFile& file, TrainWords& w, const RankContext& rank) {
  if (rank.world->has_saved()) continue_run(&w.options);
  if (const int nodes = rank.size / rank.world->num_ranks(); nodes != file.config().launch.nodes)
    file.use_nodes(nodes);
  return train_rank(file, w.options,
                    {.rank = rank.rank,
                     .threads = rank.threads,
                     .world = rank.world,
                     .node = rank.node,
                     .slots = rank.slots});
}

int run_train(TrainWords& w) {
  check_words(w);
  const auto rank = RankContext::from_environment();
  const LeaseWatch lease(rank);
  set_log_quiet(w.options.quiet || (rank && rank->rank > 0));
  std::optional<StopSignals> early;  // a rank has a supervisor that handles them
  if (!rank) early.emplace(nullptr);
  const auto launched = rank ? std::nullopt : find_launcher_place();
  const auto task = rank || launched ? std::nullopt : find_slurm_place();
  if ((launched && launched->rank > 0) || (task && task->task > 0)) set_log_quiet(true);
  add_keys(launched, task, &w);
  RunFile file(w.run, w.sets);
  if (!rank) file.log_replaced();
  apply_launch_env(file.config().launch.env);  // ranks inherit it
  check_environment();
  choose_precision(&file);  // the printed keys show it
  w.options.run_file = w.run;
  continue_requeued(file.config(), &w.options);
  if (rank) return train_one(file, w, *rank);
  if (launched && launched->size > 1) return train_launched(file, w.options, w.force, *launched);
  return task ? train_as_task(file, w, *early, *task) : train_here(file, w, *early);
}

}  // namespace

RunCommand add_train(CommandOptions& app) {
  auto w = std::make_shared<TrainWords>();
  app.add_option("RUN", w->run, "run file (YAML)")->required();
  app.add_option("--set", w->sets, "section.key=value, overrides the run file")
      ->take_all()
      ->expected(1);
  app.add_option("--run-dir", w->options.run_dir,
                 "instead of <storage>/<name>; a folder, or s3://bucket/prefix");
  app.add_option("--resume", w->options.resume, "auto | never | CHECKPOINT | RUN_DIR");
  app.add_flag("--overwrite", w->options.overwrite, "discard what the run directory holds");
  app.add_flag("--convert-states", w->options.convert_states,
               "resume with another train.precision or train.master_weights: convert");
  app.add_flag("--force", w->force, "train even if this machine has too little memory");
  app.add_option("--engine", w->engine, "local | slurm: as a job | ray: docs/ray.md");
  app.add_flag("--wait", w->waits, "with --engine slurm: follow the job, and exit with its code");
  app.add_option("--nodes", w->nodes, "machines: --set launch.nodes=N")->check(at_least(1), "N");
  app.add_option("--secret-file", w->secret_file,
                 "of a run on several nodes; default: RUN_DIR/secret, made by the first start");
  app.add_flag("--quiet", w->options.quiet, "errors only");
  return [w] { return run_train(*w); };
}

}  // namespace weft
