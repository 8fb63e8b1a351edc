// planning/memory_check.h: rejects a CPU run that cannot fit this machine before it starts.
//
// Without it the kernel would allocate address space for any arena and kill the run later, when
// pages are touched. For GPUs see planning/gpu_memory_check.h.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "base/available_memory.h"
#include "planning/plan_report.h"

namespace weft {

struct MemoryBounds {
  MemoryBound machine;    // all ranks together
  ProcessBounds process;  // each of them
};
MemoryBounds bounds_of_machine();  // this one, as it is now

// What a plan needs beyond the limits, as text ("the run needs ..., but ..."); empty: it fits. File
// pages do not count: the kernel can drop them.
std::string memory_shortage(const PlanReport& plan, const MemoryBounds& bounds);
// What would fit instead: layouts of as many or fewer ranks, single changes.
std::string memory_advice(const RunConfig& config, const PlanReport& plan,
                          const MemoryBounds& bounds);

// The shortage that remains after `retry_for`, and the limits it was found with. Ranks of a killed
// run may still be freeing their memory, so the machine is measured again until the plan fits; not
// where all its memory would not suffice, nor for process limits.
struct LastingShortage {
  std::string text;  // empty: it fits
  MemoryBounds bounds;
};
LastingShortage lasting_shortage(const PlanReport& plan,
                                 const std::function<MemoryBounds()>& measure,
                                 std::chrono::milliseconds retry_for);

// Why copies of the state do not fit besides the run; empty: they do, or there are none.
struct CopiesShortage {
  std::string slots;  // of launch.snapshot_every, with that of checkpoint.async
  std::string async;  // of checkpoint.async, where there are no slots, or none that fit
  // What all processes are expected to need, with the copies that fit; none on GPUs.
  std::optional<int64_t> planned_bytes;
};
// Once for all ranks, before any is started. UserError with both numbers; is_forced: a warning.
CopiesShortage check_memory(const RunConfig& config, bool is_forced,
                            const std::function<MemoryBounds()>& measure = bounds_of_machine);
// Of a plan: why its copies do not fit, all together; empty: they do.
std::string snapshot_shortage(const PlanReport& plan, const MemoryBounds& bounds);

// For a command that is one process on the CPU and needs an arena (`what`: "the evaluation"),
// before it is allocated. UserError with both numbers and the hint; is_forced: a warning.
void check_arena_memory(const std::string& what, int64_t arena_bytes, const std::string& hint,
                        bool is_forced);
// The message where it does not fit; empty: it does.
std::string arena_shortage(const std::string& what, int64_t arena_bytes,
                           const MemoryBounds& bounds);

}  // namespace weft
