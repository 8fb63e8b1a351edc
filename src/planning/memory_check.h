// planning/memory_check.h: a run on the CPU that cannot fit this machine is refused before it
// starts.
//
// Without it the kernel hands out addresses for any arena and kills the run later, when pages are
// touched. On a GPU planning/gpu_memory_check.h refuses, where the GPU is.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "base/available_memory.h"
#include "planning/plan_report.h"

namespace weft {

struct MemoryBounds {
  MemoryBound machine;    // all ranks together
  ProcessBounds process;  // each of them
};

// What a plan needs beyond the bounds, in words ("the run needs ..., but ..."); empty: it fits.
// Pages of files do not count: the kernel drops them when it needs to.
std::string memory_shortage(const PlanReport& plan, const MemoryBounds& bounds);
// The same where it does not fit: what would. Layouts of as many or fewer ranks, single changes.
std::string memory_advice(const RunConfig& config, const PlanReport& plan,
                          const MemoryBounds& bounds);

// The shortage that is still there after `retry_for`, and the bounds it was found with. Ranks of a
// run that was killed may still be freeing what they held, so the machine is measured again until
// the plan fits; not where all its memory would not do, nor for limits of a process.
struct LastingShortage {
  std::string text;  // empty: it fits
  MemoryBounds bounds;
};
LastingShortage lasting_shortage(const PlanReport& plan,
                                 const std::function<MemoryBounds()>& measure,
                                 std::chrono::milliseconds retry_for);

// Once for all ranks, before any is started. UserError with both; is_forced: a warning.
void check_memory(const RunConfig& config, bool is_forced);

// Of a command that is one process on the CPU and needs an arena (`what`: "the evaluation"), before
// it is allocated. UserError with both numbers and the hint; is_forced: a warning.
void check_arena_memory(const std::string& what, int64_t arena_bytes, const std::string& hint,
                        bool is_forced);
// In words, where it does not fit; empty: it does.
std::string arena_shortage(const std::string& what, int64_t arena_bytes,
                           const MemoryBounds& bounds);

}  // namespace weft
