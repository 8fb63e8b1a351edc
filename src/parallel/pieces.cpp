// parallel/pieces.cpp: equal pieces of whole units; of a vocabulary, pieces of a rounded size.
#include "parallel/pieces.h"

#include <algorithm>

#include "base/error.h"

namespace weft {
namespace {

// A multiple of the widest vector, so that the pieces of an odd vocabulary keep the fast kernels.
constexpr int64_t kVocabStep = 64;

Piece uneven_piece(int64_t index, int64_t count, int64_t extent) {
  const int64_t even = (extent + count - 1) / count;
  const int64_t size = (even + kVocabStep - 1) / kVocabStep * kVocabStep;
  return {std::min(extent, index * size), std::min(extent, (index + 1) * size)};
}

}  // namespace

std::vector<Piece> pieces_of(const TensorParallel& mesh, const Cut& cut, int64_t extent) {
  const int64_t count = mesh.pieces, units = extent / cut.unit;
  std::vector<Piece> held;
  for (int64_t i = 0; i < mesh.pieces_a_rank(); ++i) {
    const int64_t index = mesh.rank * mesh.pieces_a_rank() + i;
    if (cut.is_uneven) {
      held.push_back(uneven_piece(index, count, extent));
      continue;
    }
    if (units % count == 0) {
      const int64_t size = units / count * cut.unit;
      held.push_back({index * size, (index + 1) * size});
      continue;
    }
    ensure(!mesh.is_exact && count % units == 0,
           fmt::format("{} units cannot be cut into {} pieces", units, count));
    const int64_t copies = count / units, unit = index / copies;
    held.push_back(
        {unit * cut.unit, (unit + 1) * cut.unit, static_cast<int>(copies), index % copies == 0});
  }
  return held;
}

}  // namespace weft
