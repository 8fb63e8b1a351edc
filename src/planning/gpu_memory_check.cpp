// planning/gpu_memory_check.cpp: doubles the ranks until a layout fits.
#include "planning/gpu_memory_check.h"

#include <algorithm>

#include "base/error.h"
#include "planning/plan_fit.h"
#include "track/progress.h"

namespace weft {
namespace {

constexpr int64_t kMostRanks = 32;

// memory: of one rank, with one GPU each.
FitReport fit_ranks(const RunConfig& c, const Kernels& kernels, int64_t memory, int64_t ranks,
                    bool with_advice) {
  return fit_layouts(c, memory, ranks,
                     {.kernels = &kernels, .may_share = false, .with_advice = with_advice});
}

std::string nearest_fit(const RunConfig& c, const Kernels& kernels, int64_t memory) {
  const int64_t ranks = c.parallel.dp * c.parallel.tp;
  for (int64_t n = ranks; n <= kMostRanks; n *= 2) {
    const FitReport report = fit_ranks(c, kernels, memory, n, false);
    if (!report.has_fit()) continue;
    return fmt::format("{} on {} GPU{} of this size fits", report.rows[0].layout(), n,
                       n == 1 ? "" : "s");
  }
  return fmt::format("no layout of up to {} GPUs of this size fits", kMostRanks);
}

// What may be changed on the same number of GPUs: found by planning, since more rows at once can
// need less memory (one pass keeps no gradients). Where another layout fits as is, nothing more is
// suggested.
std::string other_changes(const RunConfig& c, const Kernels& kernels, int64_t memory) {
  const int64_t ranks = c.parallel.dp * c.parallel.tp;
  std::string text;
  for (const FitChange& change : fit_ranks(c, kernels, memory, ranks, true).advice) {
    if (change.ranks == ranks) text += "; or " + change.text();
  }
  return text;
}

// beside: memory besides the arena that was not allocated yet.
std::string complaint(const std::string& what, int64_t arena_bytes, const Device& device,
                      int64_t available, int64_t overhead) {
  return fmt::format(
      "{} needs {} on {}, which has {} free ({} and {} bytes; libraries need another {})", what,
      format_bytes(arena_bytes), device.name(), format_bytes(available), arena_bytes, available,
      format_bytes(overhead));
}

}  // namespace

void check_gpu_memory(const RunConfig& c, const Layout& layout, const Kernels& kernels,
                      int64_t arena_bytes, const Device& device) {
  const bool is_on_gpu = kernels.device != nullptr;
  const int64_t available = device.free_bytes();
  const int64_t overhead = kLibraryBytes + staging_bytes(layout, is_on_gpu);
  if (arena_bytes <= available - overhead) return;
  // A layout is planned with everything besides its arena, part of which the context has allocated.
  const int64_t memory = available - kLibraryBytes + arena_overhead(c, is_on_gpu);
  throw UserError(complaint("the run", arena_bytes, device, available, overhead),
                  nearest_fit(c, kernels, memory) + other_changes(c, kernels, memory));
}

void check_gpu_memory(const std::string& what, int64_t arena_bytes, const Device& device,
                      const std::string& hint) {
  const int64_t available = device.free_bytes();
  if (arena_bytes > available - kLibraryBytes)
    throw UserError(complaint(what, arena_bytes, device, available, kLibraryBytes), hint);
}

}  // namespace weft
