// generate/step.h: one plan bound to memory: tokens of several rows in, logits out.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "exec/executor.h"
#include "generate/plans.h"

namespace weft {

// A row's input to a step: the tokens after its first `start` ones.
struct Feed {
  std::span<const int32_t> tokens;  // at most T; empty: the row is idle in this step
  int64_t start = 0;
};

// The pinned buffer for a device's logits. None on the host.
class HostLogits {
 public:
  HostLogits(Device* device, int64_t rows, int64_t vocab_size)
      : device_(device),
        bytes_(device->is_host() ? 0 : rows * vocab_size * int64_t{sizeof(float)}),
        data_(bytes_ > 0 ? device->allocate_pinned(bytes_) : nullptr) {}
  ~HostLogits() {
    if (data_) device_->free_pinned(data_, bytes_);
  }
  HostLogits(const HostLogits&) = delete;
  HostLogits& operator=(const HostLogits&) = delete;
  float* data() const { return reinterpret_cast<float*>(data_); }
  int64_t bytes() const { return bytes_; }

 private:
  Device* device_;
  int64_t bytes_;
  std::byte* data_;
};

class GenerateStep {
 public:
  // The plan must outlive the step, and so must the logits buffer, which consecutive steps share.
  GenerateStep(const GeneratePlan& plan, const ArenaLayout& layout, const Arena& arena,
               ThreadPool* pool, const HostLogits& host_logits);
  int64_t batch() const { return batch_; }
  int64_t positions() const { return positions_; }
  const Executor& executor() const { return executor_; }

  // Row b of the cache gets feeds[b]; there may be fewer feeds than rows. Waits for the device
  // once.
  void run(std::span<const Feed> feeds);
  // After the last token that row b was fed in this step.
  std::span<const float> logits(size_t b) const;

 private:
  int32_t* input(const char* name);

  int64_t batch_, positions_, vocab_size_;
  std::string inputs_;  // prefix of their names
  Executor executor_;
  float* host_logits_;  // null: they are on the host
};

// The keys and values of all layers, one row per slot.
class KeyValueCache {
 public:
  KeyValueCache(const Graph& graph, const ArenaLayout& layout, const Arena& arena);
  void copy_row(size_t from, size_t to, int64_t positions);  // the first ones of a row

 private:
  struct Part {
    std::byte* data;
    size_t row_bytes, position_bytes;
  };
  Device* device_;
  std::vector<Part> parts_;
};

}  // namespace weft
