// planning/goodput.h: the share of time that advances training, on a cluster whose nodes fail.
//
// Failures are a Poisson process. Work is secured at intervals; a failure loses what was not, and
// `recovery_s` passes until work continues, in which nodes may fail again. So the time of an
// interval is a renewal process with a closed form.
#pragma once

#include <cstdint>

namespace weft {

struct Recovery {
  double interval_s = 0;  // of work between two securings
  double secure_s = 0;    // that training is held up by one
  double recovery_s = 0;  // from a failure until work continues
};

// Expected seconds until an interval's work is done and secured. failures_per_s: of the whole job.
double expected_interval_s(const Recovery& recovery, double failures_per_s);

// Work over time, 0 to 1.
double goodput(const Recovery& recovery, double failures_per_s);

// The interval, a multiple of step_s and at least least_s, with the best goodput.
double best_interval_s(const Recovery& recovery, double failures_per_s, double step_s,
                       double least_s);

}  // namespace weft
