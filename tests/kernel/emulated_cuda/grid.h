// tests/kernel/emulated_cuda/grid.h: blocks of threads, run one thread at a time on the CPU.
//
// Blocks run one after another. The threads of a block are fibers: each runs until it waits for the
// others (__syncthreads, a shuffle) or ends, then the next one does. A barrier that some threads
// never reach, or reach at another line, is a BugError: on a GPU it would hang or produce garbage.
// A missing barrier shows as other bits when the order of the threads changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's.
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

inline uint3 threadIdx, blockIdx;  // of the thread that runs now
inline dim3 blockDim, gridDim;
// NOLINTEND(readability-identifier-naming)

namespace weft::emulated_cuda {

// The order in which threads and blocks take their turns.
enum class Order { kForward, kBackward, kMixed };
void set_order(Order order);

// body() by every thread of every block.
void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& body);

std::byte* dynamic_shared();

void sync_block(int line);

// All lanes of `mask` meet; each offers a value, and gets that of lane `source` and the ballot of
// all that offered one that is not zero.
struct Exchange {
  uint64_t value;
  unsigned ballot;
};
Exchange exchange(unsigned mask, uint64_t offered, int source, int line);
int lane();

// Copies to shared memory (kernel/cuda/async_copy.h) are done as late as possible: when they are
// waited for. Both addresses are multiples of `bytes`. A thread must not end before its copies.
void start_copy(void* to, const void* from, std::size_t bytes);
void close_group();
void wait_for_groups(std::size_t later);

}  // namespace weft::emulated_cuda
