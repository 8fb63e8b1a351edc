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
  int64_t source = 0;  // of an encoder-decoder: tokens of its source
};

// The logits of a step on the host, of all ids: a device's are copied into a pinned buffer, and
// those of tensor-parallel ranks, which have some ids each, are joined.
class HostLogits {
 public:
  // vocab_size: of this rank. Collective where there are ranks.
  HostLogits(Device* device, int64_t rows, int64_t vocab_size, Comm* ranks = nullptr);
  ~HostLogits();
  HostLogits(const HostLogits&) = delete;
  HostLogits& operator=(const HostLogits&) = delete;
  bool fits(int64_t rows, int64_t vocab_size) const;
  int64_t vocab_size() const { return vocab_size_; }  // of all ranks
  // The first rows of this rank's logits, in memory of the device -> those of all ids. Waits.
  const float* take(const std::byte* logits, int64_t rows);

 private:
  const float* join(const float* own, int64_t rows);

  Device* device_;
  int64_t bytes_;
  std::byte* pinned_;
  Comm* ranks_;
  std::vector<int64_t> sizes_;  // of the ranks' parts
  int64_t vocab_size_;
  std::vector<float> sent_, parts_, joined_;
};

class GenerateStep {
 public:
  // The plan must outlive the step, and so must the logits buffer, which consecutive steps share.
  GenerateStep(const GeneratePlan& plan, const ArenaLayout& layout, const Arena& arena,
               ThreadPool* pool, HostLogits* host_logits, const Mesh& mesh = {});
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

  int64_t batch_, positions_;
  std::string inputs_;  // prefix of their names
  Executor executor_;
  HostLogits* host_logits_;
  const float* logits_ = nullptr;  // of the last run
};

// The encoder of an encoder-decoder over some sources, whose keys and values go into the first
// slots.
class EncodeStep {
 public:
  EncodeStep(const GeneratePlan& plan, const ArenaLayout& layout, const Arena& arena,
             ThreadPool* pool, const Mesh& mesh);
  int64_t batch() const { return batch_; }
  int64_t positions() const { return positions_; }
  const Executor& executor() const { return executor_; }
  void run(std::span<const std::vector<int32_t>* const> sources);

 private:
  int64_t batch_, positions_;
  std::string inputs_;
  Executor executor_;
};

// The ids whose logits this rank computes.
int64_t local_vocabulary(const Graph& graph);

// The keys and values of all layers, one row per slot.
class KeyValueCache {
 public:
  KeyValueCache(const Graph& graph, const ArenaLayout& layout, const Arena& arena);
  // The first positions of a row, and the first ones of its source.
  void copy_row(size_t from, size_t to, int64_t positions, int64_t source_positions);

 private:
  struct Part {
    std::byte* data;
    size_t row_bytes, position_bytes;
    bool is_source;
  };
  Device* device_;
  std::vector<Part> parts_;
};

}  // namespace weft
