// tests/kernel/emulated_cuda/grid.cpp: fibers and their scheduling.
//
// A fiber is entered once by setcontext and from then on by longjmp, which unlike swapcontext makes
// no system call: a turn costs some 20 ns. It lives on and runs the same thread of the next block.
#undef _FORTIFY_SOURCE  // its longjmp treats a jump to another stack as an attack
#include "tests/kernel/emulated_cuda/grid.h"

#include <fmt/core.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/error.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define WEFT_SWITCH_FIBER(stack, bytes) __sanitizer_start_switch_fiber(nullptr, stack, bytes)
#define WEFT_SWITCHED(from, bytes) __sanitizer_finish_switch_fiber(nullptr, from, bytes)
#else
#define WEFT_SWITCH_FIBER(stack, bytes)
#define WEFT_SWITCHED(from, bytes)
#endif

namespace weft::emulated_cuda {
namespace {

constexpr std::size_t kStackBytes = 256 << 10;  // only touched pages count
constexpr unsigned kMaxThreads = 1024;
constexpr std::size_t kMaxShared = 64 << 10;  // of compute capability 7.5, the smallest

enum class State { kReady, kAtBlock, kAtWarp, kDone };

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
};

struct Fiber {
  jmp_buf context;
  void* stack = nullptr;
  bool is_started = false;
  uint3 thread;
  State state;
  int line;  // where it waits
  unsigned mask;
  int source;
  uint64_t offered;
  Exchange got;
  std::vector<Copy> open;                // of no group yet
  std::deque<std::vector<Copy>> groups;  // that nobody has waited for
};

struct Machine {
  jmp_buf scheduler;
  const void* stack = nullptr;  // of the scheduler
  std::size_t stack_bytes = 0;
  std::vector<std::unique_ptr<Fiber>> fibers;
  unsigned num_threads = 0;  // of the block that runs
  Fiber* running = nullptr;
  unsigned index = 0;  // of the running one
  const std::function<void()>* body = nullptr;
  Order order = Order::kForward;
  bool has_askew_copy = false;  // in this block
  std::vector<std::byte> shared;
  std::byte* shared_begin = nullptr;
};
Machine machine;

uint64_t turn(uint64_t i, uint64_t n) {
  constexpr uint64_t kPrime = 1000003;  // coprime to n
  switch (machine.order) {
    case Order::kForward:
      return i;
    case Order::kBackward:
      return n - 1 - i;
    case Order::kMixed:
      return n % kPrime == 0 ? i : i * kPrime % n;
  }
  return i;
}

void to_scheduler() {
  Fiber* self = machine.running;
  if (_setjmp(self->context) == 0) {
    WEFT_SWITCH_FIBER(machine.stack, machine.stack_bytes);
    _longjmp(machine.scheduler, 1);
  }
  WEFT_SWITCHED(&machine.stack, &machine.stack_bytes);
}

void fiber_main() {
  WEFT_SWITCHED(&machine.stack, &machine.stack_bytes);
  for (;;) {
    (*machine.body)();
    machine.running->state = State::kDone;
    to_scheduler();
  }
}

void start(Fiber* fiber) {
  static ucontext_t context;  // not in this frame, which is left for good
  getcontext(&context);
  context.uc_stack.ss_sp = fiber->stack;
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, fiber_main, 0);
  fiber->is_started = true;
  setcontext(&context);
}

void resume(unsigned index) {
  Fiber* fiber = machine.fibers[index].get();
  machine.running = fiber;
  machine.index = index;
  threadIdx = fiber->thread;
  if (_setjmp(machine.scheduler) == 0) {
    WEFT_SWITCH_FIBER(fiber->stack, kStackBytes);
    if (fiber->is_started) _longjmp(fiber->context, 1);
    start(fiber);
  }
  WEFT_SWITCHED(nullptr, nullptr);
}

[[noreturn]] void fail(const std::string& what) {
  for (auto& fiber : machine.fibers) fiber->is_started = false;  // what they held is lost
  throw BugError(fmt::format("block ({}, {}, {}): {}", blockIdx.x, blockIdx.y, blockIdx.z, what));
}

std::string place(const Fiber& fiber) {
  const char* names[] = {"running", "at __syncthreads", "at a warp's operation", "done"};
  std::string text = fmt::format("thread ({}, {}, {}) is {}", fiber.thread.x, fiber.thread.y,
                                 fiber.thread.z, names[static_cast<int>(fiber.state)]);
  if (fiber.state != State::kDone) text += fmt::format(" in line {}", fiber.line);
  return text;
}

// Nobody can continue: the block's barrier opens where all wait at the same one.
void open_barrier() {
  const Fiber& first = *machine.fibers[0];
  for (unsigned i = 0; i < machine.num_threads; ++i) {
    const Fiber& fiber = *machine.fibers[i];
    if (fiber.state == State::kAtBlock && first.state == State::kAtBlock &&
        fiber.line == first.line) {
      continue;
    }
    fail(fmt::format("threads wait for each other: {}, {}", place(first), place(fiber)));
  }
  for (unsigned i = 0; i < machine.num_threads; ++i) machine.fibers[i]->state = State::kReady;
}

void check_copies() {
  if (machine.has_askew_copy) fail("the addresses of a copy are not multiples of its bytes");
  for (unsigned i = 0; i < machine.num_threads; ++i) {
    const Fiber& fiber = *machine.fibers[i];
    const bool are_empty = std::all_of(fiber.groups.begin(), fiber.groups.end(),
                                       [](const auto& group) { return group.empty(); });
    if (!are_empty || !fiber.open.empty()) fail(place(fiber) + " before its copies are");
  }
}

void run_block() {
  if (!machine.shared.empty()) std::memset(machine.shared.data(), 0x7f, machine.shared.size());
  machine.has_askew_copy = false;
  for (unsigned i = 0; i < machine.num_threads; ++i) {
    machine.fibers[i]->state = State::kReady;
    machine.fibers[i]->open.clear();
    machine.fibers[i]->groups.clear();
  }
  for (;;) {
    bool has_moved = false, are_done = true;
    for (unsigned i = 0; i < machine.num_threads; ++i) {
      const auto index = static_cast<unsigned>(turn(i, machine.num_threads));
      const Fiber& fiber = *machine.fibers[index];
      if (fiber.state == State::kReady) {
        resume(index);
        has_moved = true;
      }
      are_done = are_done && fiber.state == State::kDone;
    }
    if (are_done) return check_copies();
    if (!has_moved) open_barrier();
  }
}

void make_fibers(dim3 block) {
  machine.num_threads = block.x * block.y * block.z;
  while (machine.fibers.size() < machine.num_threads) {
    auto fiber = std::make_unique<Fiber>();
    fiber->stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ensure(fiber->stack != MAP_FAILED, "no memory for a fiber's stack");
    machine.fibers.push_back(std::move(fiber));
  }
  for (unsigned i = 0; i < machine.num_threads; ++i) {
    machine.fibers[i]->thread = {i % block.x, i / block.x % block.y, i / block.x / block.y};
  }
}

}  // namespace

void set_order(Order order) { machine.order = order; }

std::byte* dynamic_shared() { return machine.shared_begin; }

int lane() { return static_cast<int>(machine.index % 32); }

void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& body) {
  static std::mutex one_at_a_time;  // of ranks that are threads: there is one machine
  const std::lock_guard lock(one_at_a_time);
  ensure(block.x * block.y * block.z <= kMaxThreads && block.x * block.y * block.z > 0,
         "a block has 1 to 1024 threads");
  ensure(block.z <= 64 && grid.y <= 65535 && grid.z <= 65535 && grid.x <= 0x7fffffff,
         "a grid's second and third extent end at 65535");
  ensure(shared_bytes <= kMaxShared,
         "a block has at most 64 KiB of shared memory on the smallest GPU");
  constexpr std::size_t kAlign = 1024;
  machine.shared.resize(shared_bytes == 0 ? 0 : shared_bytes + kAlign);
  machine.shared_begin = reinterpret_cast<std::byte*>(
      (reinterpret_cast<uintptr_t>(machine.shared.data()) + kAlign - 1) & ~(kAlign - 1));
  machine.body = &body;
  gridDim = grid;
  blockDim = block;
  make_fibers(block);
  const uint64_t count = uint64_t{grid.x} * grid.y * grid.z;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t at = turn(i, count);
    blockIdx = {static_cast<unsigned>(at % grid.x), static_cast<unsigned>(at / grid.x % grid.y),
                static_cast<unsigned>(at / grid.x / grid.y)};
    run_block();
  }
}

void sync_block(int line) {
  machine.running->state = State::kAtBlock;
  machine.running->line = line;
  to_scheduler();
}

void start_copy(void* to, const void* from, std::size_t bytes) {
  const auto addresses = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
  if (addresses % bytes != 0) machine.has_askew_copy = true;
  machine.running->open.push_back({to, from, bytes});
}

void close_group() {
  machine.running->groups.push_back(std::move(machine.running->open));
  machine.running->open.clear();
}

void wait_for_groups(std::size_t later) {
  for (auto& groups = machine.running->groups; groups.size() > later; groups.pop_front()) {
    for (const Copy& copy : groups.front()) std::memcpy(copy.to, copy.from, copy.bytes);
  }
}

// The last lane to arrive serves all requests.
Exchange exchange(unsigned mask, uint64_t offered, int source, int line) {
  Fiber& self = *machine.running;
  const unsigned first = machine.index / 32 * 32;
  self.state = State::kAtWarp;
  self.line = line;
  self.mask = mask;
  self.source = source;
  self.offered = offered;
  const auto each_lane = [&](const auto& fn) {  // until one says no; lanes that do not exist: none
    for (unsigned i = 0; i < 32 && first + i < machine.num_threads; ++i) {
      if ((mask >> i & 1) != 0 && !fn(*machine.fibers[first + i], i)) return false;
    }
    return true;
  };
  const bool is_last = each_lane([&](const Fiber& fiber, unsigned) {
    return fiber.state == State::kAtWarp && fiber.line == line && fiber.mask == mask;
  });
  if (!is_last) {
    to_scheduler();
    return self.got;
  }
  unsigned ballot = 0;
  each_lane([&](const Fiber& fiber, unsigned i) {
    ballot |= fiber.offered != 0 ? 1u << i : 0;
    return true;
  });
  each_lane([&](Fiber& fiber, unsigned) {
    const unsigned from = first + static_cast<unsigned>(fiber.source);
    const bool is_there = from < machine.num_threads;
    fiber.got = {is_there ? machine.fibers[from]->offered : 0x7f7f7f7f7f7f7f7f, ballot};
    fiber.state = State::kReady;
    return true;
  });
  return self.got;
}

}  // namespace weft::emulated_cuda
