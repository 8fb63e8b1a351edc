// tests/dist/process_nccl.h: a fake NCCL for ranks that are processes with a fake GPU each.
//
// A communicator is a file that all its ranks map: a part per rank for collectives, a box per pair
// for messages. As in tests/fake_nccl.h, calls run on the stream's thread and wait there for the
// others, which an abort alone ends, and sums go from the last rank to the first.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/nccl/nccl_library.h"
#include "comm/reduce.h"
#include "tests/fake_device.h"

namespace weft::testing {

// The mapping of one rank. Zeros, of which a new file consists, are the beginning.
class NcclFile {
 public:
  static constexpr int kMostRanks = 4;
  static constexpr int64_t kPartBytes = int64_t{4} << 20;

  NcclFile(const std::filesystem::path& path, int rank, int num_ranks)
      : rank_(rank), num_ranks_(num_ranks) {
    ensure(num_ranks <= kMostRanks, "too many ranks for this fake");
    const int fd = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    ensure(fd >= 0 && ::ftruncate(fd, kBytes) == 0, "no file for a fake communicator");
    void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    ensure(memory != MAP_FAILED, "a fake communicator cannot be mapped");
    head_ = static_cast<Head*>(memory);
    ++head_->num_connected;
  }
  ~NcclFile() { ::munmap(head_, kBytes); }
  NcclFile(const NcclFile&) = delete;
  NcclFile& operator=(const NcclFile&) = delete;

  bool is_connected() const { return head_->num_connected == num_ranks_; }
  void abort() { is_aborted_ = true; }
  int num_ranks() const { return num_ranks_; }
  const char* part(int rank) const { return data(rank); }

  // All ranks have `in` in their parts when work is called; not where this one was aborted.
  template <typename Work>
  void meet(const void* in, int64_t bytes, const Work& work) {
    ensure(bytes <= kPartBytes, "too much for this fake");
    const int64_t round = ++round_;
    if (!wait([&] { return have_all(&Rank::done, round - 1); })) return;
    std::memcpy(data(rank_), in, static_cast<size_t>(bytes));
    head_->ranks[rank_].arrived = round;
    if (!wait([&] { return have_all(&Rank::arrived, round); })) return;
    work();
    head_->ranks[rank_].done = round;
  }

  // Messages between two ranks keep their order; those of different pairs have none.
  void exchange(const std::vector<NcclMessage>& messages) {
    std::vector<std::deque<NcclMessage>> left(2 * kMostRanks);
    for (const NcclMessage& m : messages)
      left[static_cast<size_t>(2 * m.peer + m.is_sent)].push_back(m);
    wait([&] {
      bool is_done = true;
      for (std::deque<NcclMessage>& queue : left) {
        while (!queue.empty() && pass(queue.front())) queue.pop_front();
        is_done = is_done && queue.empty();
      }
      return is_done;
    });
  }

 private:
  struct Rank {
    std::atomic<int64_t> arrived, done;  // rounds
  };
  struct Box {
    std::atomic<int64_t> num_sent, num_taken;
  };
  struct Head {
    std::atomic<int> num_connected;
    Rank ranks[kMostRanks];
    Box boxes[kMostRanks][kMostRanks];  // by from and to
  };
  static constexpr int64_t kHeadBytes = 4096;
  static constexpr size_t kBytes =
      static_cast<size_t>(kHeadBytes + kPartBytes * kMostRanks * (1 + kMostRanks));
  static_assert(sizeof(Head) <= kHeadBytes);

  char* data(int number) const {
    return reinterpret_cast<char*>(head_) + kHeadBytes + number * kPartBytes;
  }
  bool have_all(std::atomic<int64_t> Rank::*word, int64_t round) const {
    for (int r = 0; r < num_ranks_; ++r) {
      if ((head_->ranks[r].*word) < round) return false;
    }
    return true;
  }
  // Whether it became true before this rank was aborted.
  template <typename Condition>
  bool wait(const Condition& condition) const {
    while (!condition()) {
      if (is_aborted_) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }
  // Whether the box was empty, for a message that is sent, or had one.
  bool pass(const NcclMessage& m) {
    ensure(m.bytes <= kPartBytes, "too much for this fake");
    const int from = m.is_sent ? rank_ : m.peer, to = m.is_sent ? m.peer : rank_;
    Box& box = head_->boxes[from][to];
    char* place = data(kMostRanks + from * kMostRanks + to);
    const bool is_full = box.num_sent != box.num_taken;
    if (is_full == m.is_sent) return false;
    std::memcpy(m.is_sent ? place : m.data, m.is_sent ? m.data : place,
                static_cast<size_t>(m.bytes));
    ++(m.is_sent ? box.num_sent : box.num_taken);
    return true;
  }

  int rank_, num_ranks_;
  Head* head_;
  int64_t round_ = 0;  // on the stream's thread
  std::atomic<bool> is_aborted_{false};
};

class ProcessLink : public NcclLink {
 public:
  explicit ProcessLink(std::shared_ptr<NcclFile> file, int rank)
      : file_(std::move(file)), rank_(rank) {}

  State state(std::string*) override {
    return file_->is_connected() ? State::kReady : State::kUnderWay;
  }
  void abort() override { file_->abort(); }

  void all_reduce(void* data, int64_t count, Dtype dtype, Reduce op, void* stream) override {
    meet(data, count * dtype_bytes(dtype), stream,
         [=](const NcclFile& file) { reduce(file, 0, data, count, dtype, op); });
  }
  void reduce_scatter(const void* in, void* out, int64_t count, Dtype dtype,
                      void* stream) override {
    const int64_t bytes = count * dtype_bytes(dtype);
    meet(in, file_->num_ranks() * bytes, stream, [=, rank = rank_](const NcclFile& file) {
      reduce(file, rank * bytes, out, count, dtype, Reduce::kSum);
    });
  }
  void all_gather(const void* in, void* out, int64_t bytes, void* stream) override {
    meet(in, bytes, stream, [=](const NcclFile& file) {
      for (int r = 0; r < file.num_ranks(); ++r)
        std::memcpy(static_cast<char*>(out) + r * bytes, file.part(r), static_cast<size_t>(bytes));
    });
  }
  void broadcast(void* data, int64_t bytes, int root, void* stream) override {
    meet(data, bytes, stream, [=](const NcclFile& file) {
      std::memcpy(data, file.part(root), static_cast<size_t>(bytes));
    });
  }
  void exchange(const NcclMessage* messages, size_t count, void* stream) override {
    FakeDevice::queue_work(
        stream, [file = file_, all = std::vector<NcclMessage>(messages, messages + count)] {
          file->exchange(all);
        });
  }

 private:
  template <typename Work>
  void meet(const void* in, int64_t bytes, void* stream, const Work& work) {
    FakeDevice::queue_work(stream,
                           [=, file = file_] { file->meet(in, bytes, [&] { work(*file); }); });
  }
  // From the last rank to the first.
  static void reduce(const NcclFile& file, int64_t offset, void* out, int64_t count, Dtype dtype,
                     Reduce op) {
    const char* last = file.part(file.num_ranks() - 1) + offset;
    std::vector<char> sum(last, last + count * dtype_bytes(dtype));
    for (int r = file.num_ranks() - 2; r >= 0; --r) {
      const void* both[] = {sum.data(), file.part(r) + offset};
      reduce_tree(both, 2, sum.data(), count, dtype, op);
    }
    std::memcpy(out, sum.data(), sum.size());
  }

  std::shared_ptr<NcclFile> file_;
  int rank_;
};

class ProcessNccl : public NcclLibrary {
 public:
  explicit ProcessNccl(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::string version() const override { return "2.26.0"; }
  void listen_on(const std::string&) override {}
  NcclId make_id() override {
    NcclId id{};
    std::random_device source;
    const uint64_t number = (uint64_t{source()} << 32) | source();
    std::memcpy(&id, &number, sizeof number);
    return id;
  }
  std::unique_ptr<NcclLink> connect(const NcclId& id, int rank, int num_ranks) override {
    uint64_t number = 0;
    std::memcpy(&number, &id, sizeof number);
    return std::make_unique<ProcessLink>(
        std::make_shared<NcclFile>(folder_ / fmt::format("nccl-{:016x}", number), rank, num_ranks),
        rank);
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace weft::testing
