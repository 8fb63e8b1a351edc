// train/room.cpp: ranks are doubled until a layout fits.
#include "train/room.h"

#include "base/error.h"
#include "track/progress.h"
#include "train/plan_fit.h"

namespace weft {
namespace {

constexpr int64_t kMostRanks = 32;

std::string nearest_fit(const RunConfig& c, const Kernels& kernels, int64_t memory) {
  const int64_t ranks = c.parallel.dp * c.parallel.tp;
  for (int64_t n = ranks; n <= kMostRanks; n *= 2) {
    const FitReport report = fit_layouts(c, memory, n, &kernels);
    if (!report.has_fit()) continue;
    return fmt::format("{} on {} GPU{} of this size fits", report.rows[0].layout(), n,
                       n == 1 ? "" : "s");
  }
  return fmt::format("no layout of up to {} GPUs of this size fits", kMostRanks);
}

}  // namespace

void check_room(const RunConfig& c, const Kernels& kernels, int64_t arena_bytes,
                const Device& device) {
  const int64_t available = device.free_bytes();
  if (arena_bytes <= available - kLibraryBytes) return;
  throw UserError(
      fmt::format("the run wants {} on {}, which has {} free ({} and {} bytes; libraries want "
                  "another {})",
                  format_bytes(arena_bytes), device.name(), format_bytes(available), arena_bytes,
                  available, format_bytes(kLibraryBytes)),
      fmt::format("{}; or lower train.micro_batch or data.seq_length",
                  nearest_fit(c, kernels, available - kLibraryBytes)));
}

}  // namespace weft
