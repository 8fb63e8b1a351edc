// generate/step.cpp: fills inputs row by row; idle rows get harmless values.
#include "generate/step.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "tensor/names.h"

namespace weft {
namespace {

const std::string kLogits = std::string(kGeneratePrefix) + names::kLogits;

int64_t bytes_of(int64_t floats) { return floats * int64_t{sizeof(float)}; }

}  // namespace

HostLogits::HostLogits(Device* device, int64_t rows, int64_t vocab_size, Comm* ranks)
    : device_(device),
      bytes_(device->is_host() ? 0 : bytes_of(rows * vocab_size)),
      pinned_(bytes_ > 0 ? device->allocate_pinned(bytes_) : nullptr),
      ranks_(ranks),
      sizes_{vocab_size} {
  if (ranks_) {
    sizes_.resize(static_cast<size_t>(ranks_->size()));
    ranks_->all_gather(&vocab_size, sizes_.data(), sizeof vocab_size);
  }
  vocab_size_ = std::accumulate(sizes_.begin(), sizes_.end(), int64_t{0});
}

HostLogits::~HostLogits() {
  if (pinned_) device_->free_pinned(pinned_, bytes_);
}

bool HostLogits::fits(int64_t rows, int64_t vocab_size) const {
  return device_->is_host() || bytes_ >= bytes_of(rows * vocab_size);
}

const float* HostLogits::take(const std::byte* logits, int64_t rows) {
  const auto* own = reinterpret_cast<const float*>(logits);
  if (pinned_) {
    const int64_t size = sizes_[ranks_ ? static_cast<size_t>(ranks_->rank()) : 0];
    device_->copy(pinned_, logits, bytes_of(rows * size));
    device_->wait();
    own = reinterpret_cast<const float*>(pinned_);
  }
  return ranks_ ? join(own, rows) : own;
}

// Ranks send parts of equal size; the widest decides.
const float* HostLogits::join(const float* own, int64_t rows) {
  const int64_t widest = *std::max_element(sizes_.begin(), sizes_.end());
  const auto size = static_cast<size_t>(rows * widest);
  sent_.resize(size);
  parts_.resize(size * sizes_.size());
  joined_.resize(static_cast<size_t>(rows * vocab_size_));
  const int64_t width = sizes_[static_cast<size_t>(ranks_->rank())];
  for (int64_t b = 0; b < rows; ++b) std::copy_n(own + b * width, width, sent_.data() + b * widest);
  ranks_->all_gather(sent_.data(), parts_.data(), bytes_of(rows * widest));
  int64_t first = 0;
  for (size_t r = 0; r < sizes_.size(); ++r) {
    for (int64_t b = 0; b < rows; ++b) {
      std::copy_n(parts_.data() + r * size + b * widest, sizes_[r],
                  joined_.data() + b * vocab_size_ + first);
    }
    first += sizes_[r];
  }
  return joined_.data();
}

GenerateStep::GenerateStep(const GeneratePlan& plan, const ArenaLayout& layout, const Arena& arena,
                           ThreadPool* pool, HostLogits* host_logits, const Mesh& mesh)
    : batch_(plan.batch),
      positions_(plan.positions),
      inputs_(kGeneratePrefix + plan_name(plan.batch, plan.positions, false) + "."),
      executor_(plan.plan, layout, arena, pool, mesh),
      host_logits_(host_logits) {
  ensure(host_logits->fits(batch_, local_vocabulary(plan.plan.graph)),
         "the logits of a step have no buffer on the host");
}

int32_t* GenerateStep::input(const char* name) { return executor_.input<int32_t>(inputs_ + name); }

void GenerateStep::run(std::span<const Feed> feeds) {
  ensure(feeds.size() <= static_cast<size_t>(batch_), "more rows than the plan has");
  int32_t* ids = input(names::kIds);
  int32_t* positions = input(names::kPositions);
  int32_t *starts = input(names::kStarts), *lengths = input(names::kLengths),
          *last = input(names::kLast), *sources = input(names::kSourceLengths);
  std::fill_n(ids, batch_ * positions_, 0);
  std::fill_n(positions, batch_ * positions_, 0);
  for (int64_t b = 0; b < batch_; ++b) {
    const auto at = static_cast<size_t>(b);
    const Feed feed = at < feeds.size() ? feeds[at] : Feed{};
    const auto length = static_cast<int32_t>(feed.tokens.size());
    ensure(length <= positions_, "more tokens than the plan has");
    starts[b] = static_cast<int32_t>(feed.start);
    lengths[b] = length;
    if (sources) sources[b] = static_cast<int32_t>(feed.source);
    last[b] = std::max(length - 1, 0);
    for (int32_t t = 0; t < length; ++t) {
      ids[b * positions_ + t] = feed.tokens[static_cast<size_t>(t)];
      positions[b * positions_ + t] = starts[b] + t;
    }
  }
  executor_.run_pass({});
  logits_ = host_logits_->take(executor_.find(kLogits), static_cast<int64_t>(feeds.size()));
}

std::span<const float> GenerateStep::logits(size_t b) const {
  const auto width = static_cast<size_t>(host_logits_->vocab_size());
  return {logits_ + b * width, width};
}

int64_t local_vocabulary(const Graph& graph) { return graph[*graph.find(kLogits)].shape[1]; }

EncodeStep::EncodeStep(const GeneratePlan& plan, const ArenaLayout& layout, const Arena& arena,
                       ThreadPool* pool, const Mesh& mesh)
    : batch_(plan.batch),
      positions_(plan.positions),
      inputs_(kGeneratePrefix + plan_name(plan.batch, plan.positions, true) + "."),
      executor_(plan.plan, layout, arena, pool, mesh) {}

void EncodeStep::run(std::span<const std::vector<int32_t>* const> sources) {
  ensure(sources.size() <= static_cast<size_t>(batch_), "more sources than the plan has rows");
  auto* ids = executor_.input<int32_t>(inputs_ + names::kSourceIds);
  auto* lengths = executor_.input<int32_t>(inputs_ + names::kSourceLengths);
  std::fill_n(ids, batch_ * positions_, 0);
  std::fill_n(lengths, batch_, 0);
  for (size_t b = 0; b < sources.size(); ++b) {
    ensure(sources[b]->size() <= static_cast<size_t>(positions_), "a source is too long");
    lengths[b] = static_cast<int32_t>(sources[b]->size());
    std::copy(sources[b]->begin(), sources[b]->end(), ids + static_cast<int64_t>(b) * positions_);
  }
  executor_.run_pass({});
}

KeyValueCache::KeyValueCache(const Graph& graph, const ArenaLayout& layout, const Arena& arena)
    : device_(arena.device()) {
  for (const Ref r : graph.of_kind(ValueKind::kCache)) {
    const Value& v = graph[r];  // (B, positions, G, D)
    const auto bytes = static_cast<size_t>(value_bytes(v));
    const auto rows = static_cast<size_t>(v.shape[0]), positions = static_cast<size_t>(v.shape[1]);
    const bool is_source = v.name.starts_with(std::string(kGeneratePrefix) + names::kSourceCache);
    parts_.push_back(
        {arena.data() + layout.offset(v.name), bytes / rows, bytes / rows / positions, is_source});
  }
}

void KeyValueCache::copy_row(size_t from, size_t to, int64_t positions, int64_t source_positions) {
  if (from == to) return;
  for (const Part& p : parts_) {
    const int64_t count = p.is_source ? source_positions : positions;
    device_->copy(p.data + to * p.row_bytes, p.data + from * p.row_bytes,
                  count * static_cast<int64_t>(p.position_bytes));
  }
}

}  // namespace weft
