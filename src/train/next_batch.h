// train/next_batch.h: the next batch on all ranks, or the reason why all of them stop.
#pragma once

#include <exception>

#include "data/batches.h"
#include "train/ranks.h"
#include "train/signals.h"

namespace weft {

// Why all ranks stop, the same on each: a signal's number, that rows could not be read, or that
// another process has taken the run over.
inline constexpr int kRowsFailed = 1000, kRunLost = 1001;

struct NextBatch {
  bool is_there = false;     // on this rank; false without a stop: the end (once)
  int stop = 0;              // on some rank: then no rank uses its batch
  std::exception_ptr error;  // this rank's, where rows failed
};

// Collective. A rank that still waits for rows when a signal arrives stops waiting; an error in its
// rows does not end other ranks midway through a step. is_lost: kRunLost, known by this rank.
NextBatch next_batch(BatchStream& stream, Ranks& ranks, const StopSignals& signals, Batch& batch,
                     bool is_lost = false);
// The same after a return to `from`, which checks the files first.
NextBatch first_batch(const StreamState& from, BatchStream& stream, Ranks& ranks,
                      const StopSignals& signals, Batch& batch);

// Ends this rank after kRowsFailed or kRunLost: with its own error, once all ranks are here, or as
// a peer of the failing rank.
[[noreturn]] void end_with_error(Ranks& ranks, const std::exception_ptr& error);

}  // namespace weft
