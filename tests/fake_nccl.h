// tests/fake_nccl.h: a fake NCCL, for ranks that are threads with fake GPUs.
//
// Calls are queued on the stream's thread and synchronize there, as on GPUs: a missing rank leaves
// the others' queues waiting, and only an abort ends that. Sums go from the last rank to the first,
// an order that is not ours.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/nccl/nccl_library.h"
#include "comm/reduce.h"
#include "tests/fake_device.h"

namespace weft::testing {

class FakeNccl : public NcclLibrary {
 public:
  std::string version() const override { return version_text; }
  std::string version_text = "2.26.0";
  void listen_on(const std::string&) override {}
  NcclId make_id() override;
  std::unique_ptr<NcclLink> connect(const NcclId& id, int rank, int num_ranks) override;

  std::atomic<int> failing_rank{-1};  // whose GPU fails

  struct Group;

 private:
  std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<Group>> groups_;
  int64_t num_ids_ = 0;
};

struct FakeNccl::Group {
  explicit Group(int num_ranks)
      : parts(static_cast<size_t>(num_ranks)), is_aborted(static_cast<size_t>(num_ranks)) {}

  struct Part {
    const char* in;
    char* out;
  };
  struct Pending {
    const char* data;
    int64_t bytes;
    bool is_read = false;
  };

  std::mutex mutex;
  std::condition_variable changed;
  int num_connected = 0;
  std::vector<Part> parts;  // of the call in progress
  std::vector<bool> is_aborted;
  size_t num_arrived = 0;
  int64_t round = 0;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Pending>>> pending;  // by from and to

  // Whether it became true before this rank was aborted.
  template <typename Condition>
  bool wait(std::unique_lock<std::mutex>& lock, int rank, const Condition& condition) {
    changed.wait(lock, [&] { return condition() || is_aborted[static_cast<size_t>(rank)]; });
    return condition();
  }

  template <typename Work>
  void meet(int rank, const Part& part, const Work& work) {
    std::unique_lock lock(mutex);
    parts[static_cast<size_t>(rank)] = part;
    const int64_t now = round;
    if (++num_arrived < parts.size()) {
      if (!wait(lock, rank, [&] { return round != now; }))
        --num_arrived;  // as if it had not arrived
      return;
    }
    work(parts);
    num_arrived = 0;
    ++round;
    changed.notify_all();
  }

  void exchange(int rank, const std::vector<NcclMessage>& messages) {
    std::unique_lock lock(mutex);
    std::vector<std::shared_ptr<Pending>> sent;
    for (const NcclMessage& m : messages) {
      if (!m.is_sent) continue;
      sent.push_back(std::make_shared<Pending>(Pending{static_cast<char*>(m.data), m.bytes}));
      pending[{rank, m.peer}].push_back(sent.back());
    }
    changed.notify_all();
    const auto take_all = [&] {
      for (const NcclMessage& m : messages) {
        if (m.is_sent) continue;
        auto& box = pending[{m.peer, rank}];
        if (!wait(lock, rank, [&] { return !box.empty(); })) return false;
        const std::shared_ptr<Pending> message = box.front();
        box.pop_front();
        std::memmove(m.data, message->data, static_cast<size_t>(std::min(m.bytes, message->bytes)));
        message->is_read = true;
        changed.notify_all();
      }
      return wait(lock, rank, [&] {
        return std::all_of(sent.begin(), sent.end(), [](const auto& l) { return l->is_read; });
      });
    };
    if (take_all()) return;
    for (const NcclMessage& m : messages) {  // aborted: unread messages are withdrawn
      if (m.is_sent) pending[{rank, m.peer}].clear();
    }
  }
};

// From the last rank to the first.
inline std::vector<char> reduce_backwards(const std::vector<FakeNccl::Group::Part>& parts,
                                          int64_t count, Dtype dtype, Reduce op) {
  const int64_t bytes = count * dtype_bytes(dtype);
  std::vector<char> sum(parts.back().in, parts.back().in + bytes);
  for (size_t r = parts.size() - 1; r-- > 0;) {
    const void* both[] = {sum.data(), parts[r].in};
    reduce_tree(both, 2, sum.data(), count, dtype, op);
  }
  return sum;
}

class FakeLink : public NcclLink {
  using Group = FakeNccl::Group;
  using Parts = std::vector<Group::Part>;

 public:
  FakeLink(FakeNccl* library, std::shared_ptr<Group> group, int rank)
      : library_(library), group_(std::move(group)), rank_(rank) {
    const std::lock_guard lock(group_->mutex);
    ++group_->num_connected;
  }
  // NCCL waits here for captured graphs of its calls, for ever.
  ~FakeLink() override {
    if (std::uncaught_exceptions() > 0) return;
    constexpr int kNaps = 2000;
    for (int i = 0; i < kNaps && calls_.use_count() > 1; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(calls_.use_count(), 1) << "calls are still captured or queued";
  }

  State state(std::string* failure) override {
    if (library_->failing_rank == rank_) {
      *failure = "NCCL failed in a test on GPU " + std::to_string(rank_);
      return State::kFailed;
    }
    const std::lock_guard lock(group_->mutex);
    return group_->num_connected < static_cast<int>(group_->parts.size()) ? State::kUnderWay
                                                                          : State::kReady;
  }
  void abort() override {
    const std::lock_guard lock(group_->mutex);
    group_->is_aborted[static_cast<size_t>(rank_)] = true;
    group_->changed.notify_all();
  }

  void all_reduce(void* data, int64_t count, Dtype dtype, Reduce op, void* stream) override {
    meet(data, data, stream, [=](const Parts& parts) {
      const std::vector<char> sum = reduce_backwards(parts, count, dtype, op);
      for (const auto& part : parts) std::copy(sum.begin(), sum.end(), part.out);
    });
  }
  void reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype,
                      void* stream) override {
    meet(in, out, stream, [=](const Parts& parts) {
      const auto n = static_cast<int64_t>(parts.size()), bytes = count * dtype_bytes(dtype);
      const std::vector<char> sum = reduce_backwards(parts, n * count, dtype, Reduce::kSum);
      for (int64_t r = 0; r < n; ++r) {
        std::copy_n(sum.begin() + r * bytes, bytes, parts[static_cast<size_t>(r)].out);
      }
    });
  }
  void all_gather(const void* in, void* out, int64_t bytes, void* stream) override {
    meet(in, out, stream, [=](const Parts& parts) {
      std::vector<char> all;
      for (const auto& part : parts) all.insert(all.end(), part.in, part.in + bytes);
      for (const auto& part : parts) std::copy(all.begin(), all.end(), part.out);
    });
  }
  void broadcast(void* data, int64_t bytes, int root, void* stream) override {
    meet(data, data, stream, [=](const Parts& parts) {
      const char* from = parts[static_cast<size_t>(root)].in;
      for (const auto& part : parts) {
        if (part.out != from) std::copy_n(from, bytes, part.out);
      }
    });
  }
  void exchange(const NcclMessage* messages, size_t count, void* stream) override {
    FakeDevice::queue_work(stream, [group = group_, rank = rank_, calls = calls_,
                                    all = std::vector<NcclMessage>(messages, messages + count)] {
      group->exchange(rank, all);
    });
  }

 private:
  template <typename Work>
  void meet(const void* in, void* out, void* stream, const Work& work) {
    const Group::Part part{static_cast<const char*>(in), static_cast<char*>(out)};
    FakeDevice::queue_work(stream, [group = group_, rank = rank_, part, work, calls = calls_] {
      group->meet(rank, part, work);
    });
  }

  FakeNccl* library_;
  std::shared_ptr<Group> group_;
  int rank_;
  std::shared_ptr<int> calls_ = std::make_shared<int>();  // shared by those not done or captured
};

inline NcclId FakeNccl::make_id() {
  const std::lock_guard lock(mutex_);
  NcclId id{};
  const int64_t number = ++num_ids_;
  std::memcpy(&id, &number, sizeof number);
  return id;
}

inline std::unique_ptr<NcclLink> FakeNccl::connect(const NcclId& id, int rank, int num_ranks) {
  const std::lock_guard lock(mutex_);
  int64_t number = 0;
  std::memcpy(&number, &id, sizeof number);
  std::shared_ptr<Group>& group = groups_[number];
  if (!group) group = std::make_shared<Group>(num_ranks);
  return std::make_unique<FakeLink>(this, group, rank);
}

}  // namespace weft::testing
