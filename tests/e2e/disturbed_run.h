// tests/e2e/disturbed_run.h: a run whose ranks are killed or stopped, against one that was not.
#pragma once

#include <string>
#include <vector>

#include "tests/e2e/tiny_run.h"

namespace weft::testing {

bool is_any_left(const TinyRun& run);  // a process of one of its runs
size_t num_steps(const TinyRun& run, const std::string& name);
size_t num_events(const TinyRun& run, const std::string& name, const char* event);

// Of the run's ranks, in the order in which events.jsonl has them: starts and recoveries.
std::vector<int64_t> generations_of(const TinyRun& run, const std::string& name);

// Checkpoints, the best, final/ and metrics are those of a run that nothing disturbed.
void expect_same_run(const TinyRun& run, const std::string& a, const std::string& b);

// 200 steps with checkpoints and evaluations, and any number of restarts.
std::vector<std::string> sets_of(const TinyRun& run, const std::string& name,
                                 const std::vector<std::string>& more);

}  // namespace weft::testing
