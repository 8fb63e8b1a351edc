// planning/memory_check.cpp: the plan against what this machine, its cgroups and ulimit leave.
#include "planning/memory_check.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "config/session.h"
#include "io/hf_folder.h"
#include "optim/optimizer.h"
#include "planning/backend.h"
#include "planning/plan_fit.h"
#include "planning/snapshot_bytes.h"
#include "track/progress.h"

namespace weft {
namespace {

// A command's memory besides its arena: program, tokenizer, rows (measured in
// planning/host_memory.cpp).
constexpr int64_t kOtherBytes = 16 << 20;

// A single rank's arena is private; with several ranks it is shared, and a rank maps those of its
// peers.
struct ProcessNeed {
  int64_t addresses, data;
};

ProcessNeed process_need(const PlanReport& plan) {
  const int64_t own = plan.host.private_of(0), arena = plan.largest_arena();
  if (plan.layout.num_ranks() == 1) return {arena + own, arena + own};
  const int64_t mapped = comm_choice() == "gloo" ? 1 : plan.layout.dp + plan.layout.tp - 1;
  return {mapped * arena + own, own};
}

// Memory that must be resident at once: code can be dropped and reloaded.
int64_t machine_need(const PlanReport& plan) { return plan.resident_of_node() - plan.host.code; }

// What is left for each of `ranks` in another layout.
int64_t memory_of_a_rank(const PlanReport& plan, const MemoryBounds& b, int64_t ranks) {
  const int64_t supervisor = ranks > 1 ? plan.host.supervisor : 0;
  const int64_t process = std::min(b.process.addresses.bytes, b.process.data.bytes);
  return std::min((b.machine.bytes - supervisor) / ranks, process);
}

std::string describe_parts(const PlanReport& plan) {
  const int ranks = plan.layout.num_ranks();
  if (ranks == 1) {
    return fmt::format("an arena of {}, {} of other memory", format_bytes(plan.largest_arena()),
                       format_bytes(plan.host.private_of(0)));
  }
  return fmt::format("{} ranks: arenas of {}, {} of other memory per rank, {} of their supervisor",
                     ranks, format_bytes(plan.sum_of_arenas()),
                     format_bytes(plan.host.private_of(0)), format_bytes(plan.host.supervisor));
}

std::string process_shortage(const char* what, int64_t need, const MemoryBound& bound) {
  if (need <= bound.bytes) return "";
  return fmt::format("a process of the run needs {} {}, but {} leaves {} ({} and {} bytes)",
                     format_bytes(need), what, bound.source, format_bytes(bound.bytes), need,
                     bound.bytes);
}

// The minimum for any layout on one machine: parameters and states in bf16, or where some are
// frozen only the parameters. Below that no layout is worth planning: a large model's plans take
// seconds.
int64_t least_bytes(const RunConfig& c, const PlanReport& plan) {
  const auto states = find_optimizer(c.train.optimizer.name).states(c.train.optimizer).size();
  return plan.num_parameters * (c.model.freeze.empty() ? 2 + 2 * static_cast<int64_t>(states) : 2);
}

// The first number of ranks, from the run's down, with a layout that fits.
std::string fewer_ranks(const RunConfig& c, const PlanReport& plan, const MemoryBounds& b) {
  const Kernels& kernels = choose_kernels(c);
  std::string text;
  for (int64_t ranks = plan.layout.num_ranks();; ranks /= 2) {
    const bool is_same = ranks == plan.layout.num_ranks();
    const FitReport report =
        fit_layouts(c, memory_of_a_rank(plan, b, ranks), ranks,
                    {.kernels = &kernels, .may_share = false, .with_advice = is_same});
    for (const FitChange& change : report.advice) {
      if (change.ranks == ranks) text += (text.empty() ? "" : "; or ") + change.text();
    }
    if (report.has_fit()) {
      return fmt::format("{}{}{} fits: {} per rank", text, text.empty() ? "" : "; or ",
                         report.rows[0].layout(), format_bytes(report.rows[0].resident));
    }
    if (ranks == 1) return text;
  }
}

}  // namespace

std::string memory_shortage(const PlanReport& plan, const MemoryBounds& b) {
  const int64_t need = machine_need(plan);
  if (need > b.machine.bytes) {
    return fmt::format("the run needs {} of memory ({}), but {} is available: {} ({} and {} bytes)",
                       format_bytes(need), describe_parts(plan), format_bytes(b.machine.bytes),
                       b.machine.source, need, b.machine.bytes);
  }
  const ProcessNeed process = process_need(plan);
  const std::string addresses =
      process_shortage("of address space", process.addresses, b.process.addresses);
  return addresses.empty() ? process_shortage("of private memory", process.data, b.process.data)
                           : addresses;
}

std::string memory_advice(const RunConfig& c, const PlanReport& plan, const MemoryBounds& b) {
  const bool is_of_process = machine_need(plan) <= b.machine.bytes;
  std::string text =
      is_of_process ? "raise the limit of the shell (ulimit -v, ulimit -d); or " : "";
  const int64_t most = std::min(b.machine.bytes, memory_of_a_rank(plan, b, 1));
  if (least_bytes(c, plan) > most) {
    text += fmt::format(
        "no layout fits: {} parameters and their states need at least {}; use a smaller model, or "
        "fewer layers of it (model.num_layers)",
        format_count(static_cast<double>(plan.num_parameters)), format_bytes(least_bytes(c, plan)));
  } else {
    const std::string found = fewer_ranks(c, plan, b);
    text += found.empty() ? "no layout of this many or fewer ranks fits, nor does any with only "
                            "another train.micro_batch, bf16 or shorter rows"
                          : found;
  }
  return text + "; `weft plan RUN` lists the memory; --force trains anyway";
}

namespace {

// need: for the machine.
LastingShortage shortage_after(int64_t need,
                               const std::function<std::string(const MemoryBounds&)>& shortage,
                               const std::function<MemoryBounds()>& measure,
                               std::chrono::milliseconds retry_for) {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + retry_for;
  const int64_t all_memory = ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE);
  for (;;) {
    LastingShortage found{"", measure()};
    found.text = shortage(found.bounds);
    const bool may_pass = need > found.bounds.machine.bytes && need <= all_memory;
    if (found.text.empty() || !may_pass || Clock::now() >= deadline) return found;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

constexpr std::chrono::seconds kRetryFor{2};

}  // namespace

MemoryBounds bounds_of_machine() { return {available_memory(), available_to_process()}; }

LastingShortage lasting_shortage(const PlanReport& plan,
                                 const std::function<MemoryBounds()>& measure,
                                 std::chrono::milliseconds retry_for) {
  return shortage_after(
      machine_need(plan), [&](const MemoryBounds& b) { return memory_shortage(plan, b); }, measure,
      retry_for);
}

std::string arena_shortage(const std::string& what, int64_t arena_bytes, const MemoryBounds& b) {
  const int64_t need = arena_bytes + kOtherBytes;
  for (const MemoryBound* bound : {&b.machine, &b.process.addresses, &b.process.data}) {
    if (need <= bound->bytes) continue;
    return fmt::format(
        "{} needs {} of memory (an arena of {}), but {} is available: {} ({} and {} "
        "bytes)",
        what, format_bytes(need), format_bytes(arena_bytes), format_bytes(bound->bytes),
        bound->source, need, bound->bytes);
  }
  return "";
}

void check_arena_memory(const std::string& what, int64_t arena_bytes, const std::string& hint,
                        bool is_forced) {
  const LastingShortage found = shortage_after(
      arena_bytes + kOtherBytes,
      [&](const MemoryBounds& b) { return arena_shortage(what, arena_bytes, b); },
      bounds_of_machine, kRetryFor);
  if (found.text.empty()) return;
  if (!is_forced) throw UserError(found.text, hint + "; --force continues anyway");
  log_warning("{}; --force: starting anyway, it may be killed", found.text);
}

namespace {

constexpr const char* kAsyncCopy =
    "checkpoints are written beside training (checkpoint.async) from a copy of the state, which "
    "needs";
constexpr const char* kSlotCopies =
    "a run continues after the death of a rank from copies of the state "
    "(launch.snapshot_every), which need";

// `need`: of the run without them.
std::string copies_shortage(const char* what, int64_t need, int64_t copies,
                            const MemoryBound& bound) {
  if (need + copies <= bound.bytes) return "";
  return fmt::format("{} {} besides the run's {}, but {} is available: {} ({} and {} bytes)", what,
                     format_bytes(copies), format_bytes(need), format_bytes(bound.bytes),
                     bound.source, need + copies, bound.bytes);
}

}  // namespace

std::string snapshot_shortage(const PlanReport& plan, const MemoryBounds& b) {
  int64_t largest = 0;
  for (const RankPlan& rank : plan.plans) largest = std::max(largest, rank.snapshot);
  const ProcessNeed process = process_need(plan);
  const char* what = plan.has_slots ? kSlotCopies : kAsyncCopy;
  const int64_t own = plan.has_slots ? 0 : largest;  // slots are shared memory
  const int64_t copies_here = plan.snapshots * plan.num_ranks_here() / plan.layout.num_ranks();
  const std::string all[] = {copies_shortage(what, machine_need(plan), copies_here, b.machine),
                             copies_shortage(what, process.addresses, largest, b.process.addresses),
                             copies_shortage(what, process.data, own, b.process.data)};
  for (const std::string& text : all) {
    if (!text.empty()) return text;
  }
  return "";
}

namespace {

// launch.snapshot_every is 0, and everything else the same.
RunConfig without_slots(RunConfig c) {
  c.launch.snapshot_every = "0";
  return c;
}

PlanReport without_slots(PlanReport plan, const RunConfig& c) {
  const int64_t before = num_state_copies(c), after = num_state_copies(without_slots(c));
  plan.has_slots = false;
  plan.snapshots = plan.snapshots / before * after;
  for (RankPlan& rank : plan.plans) rank.snapshot = rank.snapshot / before * after;
  return plan;
}

CopiesShortage refuse_shortage(const RunConfig& c, const std::function<MemoryBounds()>& measure) {
  PlanReport plan = plan_run(c);
  const LastingShortage found = lasting_shortage(plan, measure, kRetryFor);
  if (!found.text.empty()) throw UserError(found.text, memory_advice(c, plan, found.bounds));
  CopiesShortage copies;
  if (plan.has_slots) {
    copies.slots = snapshot_shortage(plan, found.bounds);
    if (!copies.slots.empty()) plan = without_slots(std::move(plan), c);
  }
  if (!plan.has_slots) copies.async = snapshot_shortage(plan, found.bounds);
  copies.planned_bytes = plan.resident_total() + (copies.async.empty() ? plan.snapshots : 0);
  return copies;
}

// Arenas are in the GPUs' memory, copies of the state in the machine's.
CopiesShortage shortage_beside_gpus(const RunConfig& c, const MemoryBound& bound) {
  CopiesShortage copies;
  if (num_state_copies(c) == 0) return copies;
  const HfFolder folder(resolve_model_path(c.model.path));
  const int64_t bytes = snapshot_bytes(c, *open_model(c, folder));
  const auto shortage = [&](const char* what, int64_t count) {
    return copies_shortage(what, 0, count * bytes, bound);
  };
  const bool has_slots = has_snapshot_slots(c);
  if (has_slots) copies.slots = shortage(kSlotCopies, num_state_copies(c));
  if (!has_slots || !copies.slots.empty())
    copies.async = shortage(kAsyncCopy, num_state_copies(without_slots(c)));
  return copies;
}

}  // namespace

CopiesShortage check_memory(const RunConfig& c, bool is_forced,
                            const std::function<MemoryBounds()>& measure) {
  if (choose_kernels(c).device != nullptr) return shortage_beside_gpus(c, measure().machine);
  if (!is_forced) return refuse_shortage(c, measure);
  try {
    return refuse_shortage(c, measure);
  } catch (const std::exception& e) {  // also if the check itself fails
    log_warning("{}; --force: starting anyway, it may be killed", e.what());
    return {has_snapshot_slots(c) ? e.what() : "", c.checkpoint.async ? e.what() : "", {}};
  }
}

}  // namespace weft
