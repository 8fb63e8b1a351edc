// train/copies.cpp: every rank reports what it holds with hashes; equal names must have equal
// hashes.
#include "train/copies.h"

#include <unordered_map>

#include "base/error.h"

namespace weft {
namespace {

// What is exchanged: which portion of which tensor, and its bytes, as hashes. {0, 0} is padding.
struct HeldHashes {
  uint64_t portion = 0, bytes = 0;
};

// What each rank holds, rank by rank, all lists padded to the longest.
std::vector<HeldHashes> gather(Ranks& ranks, const std::vector<Weights::Copy>& held) {
  auto longest = static_cast<int64_t>(held.size());
  ranks.world().all_reduce(&longest, 1, Dtype::kI64, Reduce::kMax);
  std::vector<HeldHashes> mine(static_cast<size_t>(longest));
  for (size_t i = 0; i < held.size(); ++i) mine[i] = {held[i].portion, held[i].bytes};
  std::vector<HeldHashes> all(mine.size() * static_cast<size_t>(ranks.size()));
  ranks.world().all_gather(mine.data(), all.data(),
                           static_cast<int64_t>(mine.size() * sizeof(HeldHashes)));
  return all;
}

}  // namespace

void compare_copies(Ranks& ranks, const Weights& weights, int64_t step) {
  if (ranks.size() == 1) return;
  const std::vector<Weights::Copy> held = weights.copies();
  std::unordered_map<uint64_t, const Weights::Copy*> mine;
  for (const Weights::Copy& copy : held) mine.emplace(copy.portion, &copy);
  const std::vector<HeldHashes> all = gather(ranks, held);
  const size_t stride = all.size() / static_cast<size_t>(ranks.size());
  // Other ranks' lists in rank order: all ranks name the same one of several differences.
  for (size_t i = 0; i < all.size(); ++i) {
    const auto found = mine.find(all[i].portion);
    if (found == mine.end()) continue;
    ensure(found->second->bytes == all[i].bytes,
           fmt::format("step {}: {} differs between ranks {} and {}, which hold copies of it", step,
                       found->second->name, i / stride, ranks.rank()));
  }
}

}  // namespace weft
