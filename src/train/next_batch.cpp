// train/next_batch.cpp: a wait that a signal ends, and one number over all ranks.
#include "train/next_batch.h"

#include <functional>

#include "base/error.h"
#include "base/stop.h"
#include "train/rank_agreement.h"

namespace weft {
namespace {

NextBatch agree_on_batch(const std::function<bool()>& take, Ranks& ranks,
                         const StopSignals& signals, bool is_lost = false) {
  NextBatch next;
  int mine = 0;
  try {
    next.is_there = take();
    mine = signals.received();
  } catch (const StopError&) {
    mine = signals.received();
  } catch (const Error&) {
    next.error = std::current_exception();
    mine = kRowsFailed;
  }
  next.stop = agree_on_signal(ranks, is_lost ? kRunLost : mine);
  return next;
}

}  // namespace

NextBatch next_batch(BatchStream& stream, Ranks& ranks, const StopSignals& signals, Batch& batch,
                     bool is_lost) {
  return agree_on_batch([&] { return stream.next(batch); }, ranks, signals, is_lost);
}

NextBatch first_batch(const StreamState& from, BatchStream& stream, Ranks& ranks,
                      const StopSignals& signals, Batch& batch) {
  const auto take = [&] {
    stream.restore(from);
    return stream.next(batch);
  };
  return agree_on_batch(take, ranks, signals);
}

void end_with_error(Ranks& ranks, const std::exception_ptr& error) {
  // One rank's exit ends the others, which may still have to log their save.
  try {
    ranks.world().barrier();
  } catch (const PeerError&) {
    if (!error) throw;
  }
  if (error) std::rethrow_exception(error);
  ranks.world().barrier();  // aborted by the rank that has the error, with its reason
  throw PeerError("another rank has ended with an error");
}

}  // namespace weft
