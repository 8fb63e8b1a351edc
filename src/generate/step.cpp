// generate/step.cpp: fills inputs row by row; idle rows get harmless values.
#include "generate/step.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/names.h"

namespace weft {
namespace {

const std::string kLogits = std::string(kGeneratePrefix) + names::kLogits;

int64_t vocabulary(const Graph& graph) { return graph[*graph.find(kLogits)].shape[1]; }

}  // namespace

GenerateStep::GenerateStep(const GeneratePlan& plan, const ArenaLayout& layout, const Arena& arena,
                           ThreadPool* pool, const HostLogits& host_logits)
    : batch_(plan.batch),
      positions_(plan.positions),
      vocab_size_(vocabulary(plan.plan.graph)),
      inputs_(fmt::format("{}{}x{}.", kGeneratePrefix, plan.batch, plan.positions)),
      executor_(plan.plan, layout, arena, pool),
      host_logits_(host_logits.data()) {
  ensure(arena.device()->is_host() ||
             host_logits.bytes() >= batch_ * vocab_size_ * int64_t{sizeof(float)},
         "the logits of a step have no buffer on the host");
}

int32_t* GenerateStep::input(const char* name) { return executor_.input<int32_t>(inputs_ + name); }

void GenerateStep::run(std::span<const Feed> feeds) {
  ensure(feeds.size() <= static_cast<size_t>(batch_), "more rows than the plan has");
  int32_t* ids = input(names::kIds);
  int32_t* positions = input(names::kPositions);
  int32_t *starts = input(names::kStarts), *lengths = input(names::kLengths),
          *last = input(names::kLast);
  std::fill_n(ids, batch_ * positions_, 0);
  std::fill_n(positions, batch_ * positions_, 0);
  for (int64_t b = 0; b < batch_; ++b) {
    const auto at = static_cast<size_t>(b);
    const Feed feed = at < feeds.size() ? feeds[at] : Feed{};
    const auto length = static_cast<int32_t>(feed.tokens.size());
    ensure(length <= positions_, "more tokens than the plan has");
    starts[b] = static_cast<int32_t>(feed.start);
    lengths[b] = length;
    last[b] = std::max(length - 1, 0);
    for (int32_t t = 0; t < length; ++t) {
      ids[b * positions_ + t] = feed.tokens[static_cast<size_t>(t)];
      positions[b * positions_ + t] = starts[b] + t;
    }
  }
  executor_.run_pass({});
  if (host_logits_) {
    const auto bytes = static_cast<int64_t>(feeds.size() * sizeof(float)) * vocab_size_;
    executor_.device()->copy(host_logits_, executor_.find(kLogits), bytes);
    executor_.device()->wait();
  }
}

std::span<const float> GenerateStep::logits(size_t b) const {
  const float* all = host_logits_ ? host_logits_ : executor_.at<float>(kLogits);
  const auto width = static_cast<size_t>(vocab_size_);
  return {all + b * width, width};
}

KeyValueCache::KeyValueCache(const Graph& graph, const ArenaLayout& layout, const Arena& arena)
    : device_(arena.device()) {
  for (const Ref r : graph.of_kind(ValueKind::kCache)) {
    const Value& v = graph[r];  // (B, positions, G, D)
    const auto bytes = static_cast<size_t>(value_bytes(v));
    const auto rows = static_cast<size_t>(v.shape[0]), positions = static_cast<size_t>(v.shape[1]);
    parts_.push_back(
        {arena.data() + layout.offset(v.name), bytes / rows, bytes / rows / positions});
  }
}

void KeyValueCache::copy_row(size_t from, size_t to, int64_t positions) {
  if (from == to) return;
  for (const Part& p : parts_) {
    device_->copy(p.data + to * p.row_bytes, p.data + from * p.row_bytes,
                  positions * static_cast<int64_t>(p.position_bytes));
  }
}

}  // namespace weft
