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

bool fits(int64_t arena_bytes, int64_t available) {
  return arena_bytes <= available - kLibraryBytes;
}

std::string complaint(const std::string& what, int64_t arena_bytes, const Device& device,
                      int64_t available) {
  return fmt::format(
      "{} wants {} on {}, which has {} free ({} and {} bytes; libraries want "
      "another {})",
      what, format_bytes(arena_bytes), device.name(), format_bytes(available), arena_bytes,
      available, format_bytes(kLibraryBytes));
}

}  // namespace

int64_t beside_arena(bool is_on_gpu) { return is_on_gpu ? kContextBytes : kProgramBytes; }
const char* beside_arena_name(bool is_on_gpu) { return is_on_gpu ? "context" : "program"; }

void check_room(const RunConfig& c, const Kernels& kernels, int64_t arena_bytes,
                const Device& device) {
  const int64_t available = device.free_bytes();
  if (fits(arena_bytes, available)) return;
  // A layout is planned with all that stands beside its arena, of which the context has its part.
  const int64_t memory = available - kLibraryBytes + beside_arena(kernels.device != nullptr);
  throw UserError(complaint("the run", arena_bytes, device, available),
                  fmt::format("{}; or lower train.micro_batch or data.seq_length",
                              nearest_fit(c, kernels, memory)));
}

void check_room(const std::string& what, int64_t arena_bytes, const Device& device,
                const std::string& hint) {
  const int64_t available = device.free_bytes();
  if (!fits(arena_bytes, available))
    throw UserError(complaint(what, arena_bytes, device, available), hint);
}

}  // namespace weft
