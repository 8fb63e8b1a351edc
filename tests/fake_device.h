// tests/fake_device.h: a fake GPU: host memory, and two queues served by threads.
//
// Work is asynchronous, as on a GPU: a missing order between the queues fails now and then, and the
// thread sanitizer sees it. A captured graph keeps the queued work with its arguments at that time:
// later changes by the host do not affect a replay. With a log, it records what was queued where.
// With a fault it fails like a GPU, from some call on, or hangs.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tensor/cuda_error.h"
#include "tensor/device.h"

namespace weft::testing {

class FakeQueue {
 public:
  // Not null: pushed work is captured here, not run.
  using Keep = std::function<void(FakeQueue*, std::function<void()>)>;
  void set_keep(Keep keep) {
    const std::lock_guard lock(mutex_);
    keep_ = std::move(keep);
  }

  FakeQueue() : thread_([this] { work(); }) {}
  ~FakeQueue() {
    push([this] { stop_ = true; });
    thread_.join();
  }
  FakeQueue(const FakeQueue&) = delete;
  FakeQueue& operator=(const FakeQueue&) = delete;

  void push(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (keep_) return keep_(this, std::move(task));
    tasks_.push_back(std::move(task));
    ++pushed_;
    changed_.notify_all();
  }
  int64_t pushed() {
    const std::lock_guard lock(mutex_);
    return pushed_;
  }
  // Whether this many are done, after at most some milliseconds.
  bool wait_for(int64_t number, int64_t ms) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(ms), [&] { return done_ >= number; });
  }

 private:
  void work() {
    while (!stop_) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !tasks_.empty(); });
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  Keep keep_;
  int64_t pushed_ = 0, done_ = 0;
  bool stop_ = false;  // of the thread
  std::thread thread_;
};

// How often a device was called, by kind (FakeDevice::Fault::call).
class CallCounts {
 public:
  void add(const std::string& call) {
    const std::lock_guard lock(mutex_);
    ++counts_[call];
  }
  int64_t of(const std::string& call) const {
    const std::lock_guard lock(mutex_);
    const auto found = counts_.find(call);
    return found == counts_.end() ? 0 : found->second;
  }
  int64_t of_all() const {
    const std::lock_guard lock(mutex_);
    int64_t sum = 0;
    for (const auto& [call, count] : counts_) sum += count;
    return sum;
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, int64_t> counts_;
};

class FakeDevice : public Device {
 public:
  explicit FakeDevice(std::vector<std::string>* log = nullptr) : log_(log) {}

  std::string name() const override { return "a fake GPU"; }
  bool is_host() const override { return false; }
  void* stream() const override { return &queue(); }
  void use(Queue queue) override { in_use_ = queue; }

  std::byte* allocate(int64_t bytes) override {
    note("allocate");
    constexpr std::align_val_t kLine{64};
    const auto size = static_cast<size_t>(bytes);
    auto* memory = static_cast<std::byte*>(::operator new(size, kLine));
    std::memset(memory, 0, size);
    taken_ += bytes;
    return memory;
  }
  // As on a GPU: queued work can no longer use it, and what a dead rank leaves stays until nobody
  // has it mapped.
  void free(std::byte* memory, int64_t bytes) override {
    constexpr int64_t kForEver = 60'000;  // ms: on a GPU this would never return
    for (FakeQueue& queue : queues_) {
      if (queue.wait_for(queue.pushed(), kForEver)) continue;
      ADD_FAILURE() << "memory is freed while queued work waits for what never comes";
      std::abort();
    }
    taken_ -= bytes;
    const std::lock_guard lock(mappings().mutex);
    if (mappings().open[memory] > 0) {
      if (!is_lost_) ++mappings().num_freed_too_early;
      mappings().left.insert(memory);
    } else {
      release(memory);
    }
  }
  std::byte* allocate_pinned(int64_t bytes) override { return allocate(bytes); }
  void free_pinned(std::byte* memory, int64_t bytes) override { free(memory, bytes); }
  int64_t taken_bytes() const { return taken_; }

  bool pin(std::byte* memory, int64_t) override {
    note("pin");
    ++num_pins;
    if (!can_pin) return false;
    EXPECT_TRUE(pinned_.insert(memory).second) << "pinned twice";
    return true;
  }
  void unpin(std::byte* memory) override { EXPECT_EQ(pinned_.erase(memory), 1u); }
  bool can_pin = true;
  std::atomic<int> num_pins{0};

  void write(void* to, const void* from, int64_t bytes) override {
    note("write");
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void read(void* to, const void* from, int64_t bytes) override {
    note("read");
    if (on_read) on_read();
    wait();
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void read_aside(void* to, const void* from, int64_t bytes) override {
    note("read_aside");
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void copy(void* to, const void* from, int64_t bytes) override {
    tell("copy");
    note("copy");
    const auto pause = std::chrono::milliseconds(copy_ms);
    queue().push([=] {
      if (to != from) std::memmove(to, from, static_cast<size_t>(bytes));
      if (pause.count() > 0) std::this_thread::sleep_for(pause);
    });
  }

  // Ranks are threads of one process.
  Exported export_memory(std::byte* memory) override { return {{}, memory, 0}; }
  std::byte* import_memory(const Exported& exported) override {
    const std::lock_guard lock(mappings().mutex);
    ++mappings().open[exported.here];
    return exported.here;
  }
  void drop_memory(const Exported& exported) override {
    const std::lock_guard lock(mappings().mutex);
    if (--mappings().open[exported.here] == 0 && mappings().left.erase(exported.here) > 0)
      release(exported.here);
  }
  // For all fake devices: memory that others have mapped, and how often such memory was freed.
  struct Mappings {
    std::mutex mutex;
    std::map<const std::byte*, int> open;
    std::set<std::byte*> left;  // by their owners
    int num_freed_too_early = 0;
  };
  static Mappings& mappings() {
    static Mappings all;
    return all;
  }

  void wait() override {
    note("wait");
    ensure(!captured_, "the host waits while work is recorded");
    for (FakeQueue& queue : queues_) wait_for(queue, queue.pushed());
  }
  void set_watch(Watch watch) override { watch_ = std::move(watch); }
  std::unique_ptr<Event> make_event() override {
    return std::make_unique<FakeEvent>(this, num_events_++);
  }
  std::unique_ptr<CapturedGraph> capture(const std::function<void()>& work) override {
    auto made = std::make_unique<FakeCapturedGraph>(this);
    captured_ = made.get();
    for (FakeQueue& queue : queues_) {
      queue.set_keep([made = made.get()](FakeQueue* at, std::function<void()> task) {
        made->steps.push_back({at, std::move(task), nullptr, false});
      });
    }
    try {
      work();
    } catch (...) {
      end_capture();
      throw;
    }
    end_capture();
    ++num_captured;
    return made;
  }
  int num_captured = 0;
  int64_t copy_ms = 0;  // duration of every copy: makes a long pass
  // From the call of that number and kind on (allocate, pin, write, read, copy, wait, event,
  // replay; any: whichever), every call fails.
  struct Fault {
    std::string call;
    int64_t number = 1;
    const char* error = "cudaErrorIllegalAddress";
    int gpu = 0;
  };
  Fault fault;
  std::function<void()> on_fault;  // instead of the error
  std::function<void()> on_read;   // in each one
  bool hangs = false;              // instead: that call only queues what never ends
  void count_calls_in(CallCounts* counts) { counts_ = counts; }
  // A fault: no event holds a queue back, and the lane is slow.
  bool is_careless = false;
  int64_t num_queued(Queue queue) { return queues_[static_cast<size_t>(queue)].pushed(); }

  // Queues what a kernel on this stream would do.
  static void queue_work(void* stream, std::function<void()> work) {
    static_cast<FakeQueue*>(stream)->push(std::move(work));
  }
  void tell(const std::string& what) const {
    if (log_) log_->push_back((in_use_ == Queue::kLane ? "lane: " : "main: ") + what);
  }

 private:
  static void release(std::byte* memory) {
    constexpr std::align_val_t kLine{64};
    ::operator delete(memory, kLine);
  }

  // A place in one of the queues.
  class FakeEvent : public Event {
   public:
    FakeEvent(FakeDevice* device, int number) : device_(device), number_(number) {}
    void set() override {
      device_->tell("set " + std::to_string(number_));
      if (device_->captured_) return device_->captured_->add(this, true);
      set_in(&device_->queue());
    }
    void wait() override {
      device_->note("event");
      if (queue_) device_->wait_for(*queue_, place_);
    }
    void hold() override {
      device_->tell("hold " + std::to_string(number_));
      if (device_->captured_) {
        if (queue_ || device_->captured_->has(this)) device_->captured_->add(this, false);
        return;
      }
      hold_in(&device_->queue());
    }
    void set_in(FakeQueue* queue) {
      queue_ = queue;
      place_ = queue->pushed();
    }
    void hold_in(FakeQueue* waiting) {
      if (device_->is_careless && waiting == &device_->queues_[1]) {
        waiting->push([] { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
      }
      if (!queue_ || device_->is_careless) return;
      waiting->push([queue = queue_, place = place_] {
        while (!queue->wait_for(place, 1000)) {
        }
      });
    }

   private:
    FakeDevice* device_;
    int number_;
    FakeQueue* queue_ = nullptr;
    int64_t place_ = 0;
  };

  // The queued work in order: tasks, and events set and held.
  class FakeCapturedGraph : public CapturedGraph {
   public:
    explicit FakeCapturedGraph(FakeDevice* device) : device_(device) {}
    void replay() override {
      device_->note("replay");
      for (const Step& step : steps) {
        if (!step.event) {
          step.queue->push(step.task);
        } else if (step.is_set) {
          step.event->set_in(step.queue);
        } else {
          step.event->hold_in(step.queue);
        }
      }
    }
    void add(FakeEvent* event, bool is_set) {
      // As on a GPU: a captured graph waits for nothing outside it.
      ensure(is_set || has(event), "a captured graph waits for an event that is not part of it");
      steps.push_back({&device_->queue(), {}, event, is_set});
    }
    bool has(const FakeEvent* event) const {
      return std::any_of(steps.begin(), steps.end(),
                         [&](const Step& s) { return s.event == event && s.is_set; });
    }

    struct Step {
      FakeQueue* queue;
      std::function<void()> task;
      FakeEvent* event;  // null: a task
      bool is_set;
    };
    std::vector<Step> steps;

   private:
    FakeDevice* device_;
  };

  void end_capture() {
    for (FakeQueue& queue : queues_) queue.set_keep(nullptr);
    captured_ = nullptr;
  }

  void note(const char* call) {
    if (counts_) counts_->add(call);
    if (fault.call == call || fault.call == "any") {
      const int64_t number = ++num_calls_;
      if (number == fault.number && hangs) return queue().push(never_end);
      if (number == fault.number) is_lost_ = true;
    }
    if (!is_lost_) return;
    if (on_fault) on_fault();
    throw_cuda_error(fault.error, "a fault of the test", fault.gpu, call);
  }

  [[noreturn]] static void never_end() {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
  }

  FakeQueue& queue() const { return queues_[static_cast<size_t>(in_use_)]; }
  void wait_for(FakeQueue& queue, int64_t number) const {
    const auto begun = std::chrono::steady_clock::now();
    while (!queue.wait_for(number, 5)) {
      const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::steady_clock::now() - begun);
      if (watch_) watch_(waited.count());
    }
  }

  std::vector<std::string>* log_;
  Queue in_use_ = Queue::kMain;
  int num_events_ = 0;
  std::atomic<int64_t> taken_{0}, num_calls_{0};
  std::atomic<bool> is_lost_{false};
  CallCounts* counts_ = nullptr;
  FakeCapturedGraph* captured_ = nullptr;  // being captured
  std::set<std::byte*> pinned_;            // by the thread that copies
  Watch watch_;
  mutable FakeQueue queues_[2];
};

// Memory of a fake device.
struct FakeArena {
  FakeArena(FakeDevice* of, int64_t size) : device(of), data(of->allocate(size)), bytes(size) {}
  ~FakeArena() { device->free(data, bytes); }
  FakeArena(const FakeArena&) = delete;
  FakeArena& operator=(const FakeArena&) = delete;
  FakeDevice* device;
  std::byte* data;
  int64_t bytes;
};

}  // namespace weft::testing
