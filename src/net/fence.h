// net/fence.h: the order of plain bytes around an atomic word, in memory that processes share.
#pragma once

#include <atomic>

namespace weft {

// What comes before in this thread is not seen after what follows, nor the other way round.
inline void full_fence() {
#ifdef __SANITIZE_THREAD__  // which does not know fences, and with which gcc refuses them
  static std::atomic<int> word;
  word.fetch_add(1);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace weft
