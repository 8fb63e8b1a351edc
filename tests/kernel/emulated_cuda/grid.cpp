// tests/kernel/emulated_cuda/grid.cpp: fibers and their scheduling.
//
// A fiber lives on and runs the same thread of the next block. Turns are most of the work, so they
// are a few instructions (switch_stack): swapcontext makes a system call, and glibc's longjmp takes
// ten times as long.
#include "tests/kernel/emulated_cuda/grid.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "tests/kernel/emulated_cuda/switch_stack.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define WEFT_SWITCH_FIBER(stack, bytes) __sanitizer_start_switch_fiber(nullptr, stack, bytes)
#define WEFT_SWITCHED(from, bytes) __sanitizer_finish_switch_fiber(nullptr, from, bytes)
#else
#define WEFT_SWITCH_FIBER(stack, bytes) ((void)0)
#define WEFT_SWITCHED(from, bytes) ((void)0)
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
  void* place = nullptr;  // its stack pointer while others run; nullptr: not started
  std::byte* stack = nullptr;
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
  void* scheduler = nullptr;    // its stack pointer while a fiber runs
  const void* stack = nullptr;  // of the scheduler
  std::size_t stack_bytes = 0;
  std::vector<Fiber> fibers;
  unsigned num_threads = 0;  // of the block that runs
  Fiber* running = nullptr;
  unsigned index = 0;                // of the running one
  unsigned turn = 0, last_turn = 0;  // of those that run now: the next one, and the end
  bool is_from_scheduler = false;    // the last switch
  const std::function<void()>* body = nullptr;
  Order order = Order::kForward;
  bool has_askew_copy = false;  // in this block
  bool has_copies = false;      // now or in an earlier block
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

// Where the stack of fiber `index` begins. Stacks that began at the same offset would share few
// lines of the caches: every turn would wait for memory.
std::byte* stack_top(const Fiber& fiber, unsigned index) {
  constexpr std::size_t kApart = 17 * 64, kOffsets = 60;
  return fiber.stack + kStackBytes - index % kOffsets * kApart;
}

// The bounds of the scheduler's stack, of which ASan must know, are learnt from each switch that
// comes from there.
void arrive() {
  if (machine.is_from_scheduler) {
    WEFT_SWITCHED(&machine.stack, &machine.stack_bytes);
  } else {
    WEFT_SWITCHED(nullptr, nullptr);
  }
}

void fiber_main();

// A stack as weft_switch_stack leaves one, of a fiber that stands before its first instruction.
void* prepare_stack(std::byte* top) {
  auto* words = reinterpret_cast<void**>(top) - kFrameWords;
  std::fill_n(words, kFrameWords, nullptr);
  words[kReturnWord] = reinterpret_cast<void*>(fiber_main);
  return words;
}

// The next fiber whose turn it is and that can go on runs; `from` keeps the place of who runs now.
// False: there is none among these turns.
bool resume_next(void** from, bool is_from_scheduler) {
  for (; machine.turn < machine.last_turn; ++machine.turn) {
    const auto index = static_cast<unsigned>(turn(machine.turn, machine.num_threads));
    Fiber& fiber = machine.fibers[index];
    if (fiber.state != State::kReady) continue;
    ++machine.turn;
    machine.running = &fiber;
    machine.index = index;
    threadIdx = fiber.thread;
    machine.is_from_scheduler = is_from_scheduler;
    if (fiber.place == nullptr) fiber.place = prepare_stack(stack_top(fiber, index));
    WEFT_SWITCH_FIBER(fiber.stack, kStackBytes);
    weft_switch_stack(from, fiber.place);
    return true;
  }
  return false;
}

// The running fiber waits: the next one continues, or where there is none, the scheduler.
void give_way() {
  Fiber* self = machine.running;
  if (!resume_next(&self->place, false)) {
    WEFT_SWITCH_FIBER(machine.stack, machine.stack_bytes);
    weft_switch_stack(&self->place, machine.scheduler);
  }
  arrive();
}

void fiber_main() {
  arrive();
  for (;;) {
    (*machine.body)();
    machine.running->state = State::kDone;
    give_way();
  }
}

[[noreturn]] void fail(const std::string& what) {
  for (Fiber& fiber : machine.fibers) fiber.place = nullptr;  // what they held is lost
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
  const Fiber& first = machine.fibers[0];
  for (unsigned i = 0; i < machine.num_threads; ++i) {
    const Fiber& fiber = machine.fibers[i];
    if (fiber.state == State::kAtBlock && first.state == State::kAtBlock &&
        fiber.line == first.line) {
      continue;
    }
    fail(fmt::format("threads wait for each other: {}, {}", place(first), place(fiber)));
  }
  for (unsigned i = 0; i < machine.num_threads; ++i) machine.fibers[i].state = State::kReady;
}

void check_copies() {
  if (machine.has_askew_copy) fail("the addresses of a copy are not multiples of its bytes");
  for (unsigned i = 0; i < machine.num_threads; ++i) {
    const Fiber& fiber = machine.fibers[i];
    const bool are_empty = std::all_of(fiber.groups.begin(), fiber.groups.end(),
                                       [](const auto& group) { return group.empty(); });
    if (!are_empty || !fiber.open.empty()) fail(place(fiber) + " before its copies are");
  }
}

// Those of the begin-th to the end-th turn that can go on, each until it waits; false: none can.
bool run_ready(unsigned begin, unsigned end) {
  machine.turn = begin;
  machine.last_turn = end;
  const bool has_moved = resume_next(&machine.scheduler, true);
  if (has_moved) WEFT_SWITCHED(nullptr, nullptr);
  return has_moved;
}

bool are_done() {
  const auto end = machine.fibers.begin() + machine.num_threads;
  return std::all_of(machine.fibers.begin(), end,
                     [](const Fiber& fiber) { return fiber.state == State::kDone; });
}

void run_block() {
  if (!machine.shared.empty()) std::memset(machine.shared.data(), 0x7f, machine.shared.size());
  machine.has_askew_copy = false;
  for (unsigned i = 0; i < machine.num_threads; ++i) {
    machine.fibers[i].state = State::kReady;
    if (!machine.has_copies) continue;
    machine.fibers[i].open.clear();
    machine.fibers[i].groups.clear();
  }
  // A warp runs until its lanes end or wait for others: its stacks then stay in the first cache.
  const unsigned together = machine.order == Order::kMixed ? machine.num_threads : 32;
  for (;;) {
    bool has_moved = false;
    for (unsigned i = 0; i < machine.num_threads; i += together) {
      const unsigned end = std::min(i + together, machine.num_threads);
      while (run_ready(i, end)) has_moved = true;
    }
    if (are_done()) return check_copies();
    if (!has_moved) open_barrier();
  }
}

void make_fibers(dim3 block) {
  machine.num_threads = block.x * block.y * block.z;
  machine.fibers.reserve(kMaxThreads);
  while (machine.fibers.size() < machine.num_threads) {
    Fiber& fiber = machine.fibers.emplace_back();
    void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ensure(stack != MAP_FAILED, "no memory for a fiber's stack");
    fiber.stack = static_cast<std::byte*>(stack);
  }
  for (unsigned i = 0; i < machine.num_threads; ++i) {
    machine.fibers[i].thread = {i % block.x, i / block.x % block.y, i / block.x / block.y};
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
  give_way();
}

void start_copy(void* to, const void* from, std::size_t bytes) {
  const auto addresses = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
  if (addresses % bytes != 0) machine.has_askew_copy = true;
  machine.has_copies = true;
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
  // Until one says no; the last lane first, which mostly arrives last. A warp may have fewer.
  const auto each_lane = [&](const auto& fn) {
    for (unsigned i = std::min(32u, machine.num_threads - first); i-- > 0;) {
      if ((mask >> i & 1) != 0 && !fn(machine.fibers[first + i], i)) return false;
    }
    return true;
  };
  const bool is_last = each_lane([&](const Fiber& fiber, unsigned) {
    return fiber.state == State::kAtWarp && fiber.line == line && fiber.mask == mask;
  });
  if (!is_last) {
    give_way();
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
    fiber.got = {is_there ? machine.fibers[from].offered : 0x7f7f7f7f7f7f7f7f, ballot};
    fiber.state = State::kReady;
    return true;
  });
  return self.got;
}

}  // namespace weft::emulated_cuda
