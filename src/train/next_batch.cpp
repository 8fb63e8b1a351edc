// train/next_batch.cpp: a wait that a signal ends, and one number over all ranks.
#include "train/next_batch.h"

#include "base/error.h"
#include "base/stop.h"
#include "train/agree.h"

namespace weft {

NextBatch next_batch(BatchStream& stream, Ranks& ranks, const StopSignals& signals, Batch& batch) {
  NextBatch next;
  int mine = 0;
  try {
    next.is_there = stream.next(batch);
    mine = signals.received();
  } catch (const StopError&) {
    mine = signals.received();
  } catch (const Error&) {
    next.error = std::current_exception();
    mine = kRowsFailed;
  }
  next.stop = agree_on_signal(ranks, mine);
  return next;
}

void end_without_rows(Ranks& ranks, const std::exception_ptr& error) {
  try {
    ranks.world()
        .barrier();  // the end of one ends the others, who may still have to log their save
  } catch (const PeerError&) {
    if (!error) throw;
  }
  if (error) std::rethrow_exception(error);
  ranks.world().barrier();  // ended by the rank that has the error, with its reason
  throw PeerError("another rank could not read its rows");
}

}  // namespace weft
