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

// Each unit is the piece of `readers` neighbouring leaves, of this rank's or of several ranks'.
std::vector<Piece> copied_pieces(const TensorParallel& mesh, int64_t unit_size, int64_t units) {
  const int64_t here = mesh.pieces_a_rank(), readers = mesh.pieces / units;
  ensure(mesh.pieces % units == 0 && (here % readers == 0 || readers % here == 0),
         fmt::format("{} units cannot be cut into {} pieces, {} a rank", units, mesh.pieces, here));
  const int64_t leaves = std::min(here, readers);
  std::vector<Piece> held;
  for (int64_t index = mesh.rank * here; index < (mesh.rank + 1) * here; index += leaves) {
    const int64_t unit = index / readers;
    held.push_back({unit * unit_size, (unit + 1) * unit_size, static_cast<int>(readers / leaves),
                    index % readers == 0, static_cast<int>(leaves)});
  }
  return held;
}

}  // namespace

std::vector<Piece> pieces_of(const TensorParallel& mesh, const Cut& cut, int64_t extent) {
  const int64_t count = mesh.pieces, units = extent / cut.unit;
  if (!cut.is_uneven && units % count != 0) return copied_pieces(mesh, cut.unit, units);
  std::vector<Piece> held;
  for (int64_t i = 0; i < mesh.pieces_a_rank(); ++i) {
    const int64_t index = mesh.rank * mesh.pieces_a_rank() + i, size = units / count * cut.unit;
    held.push_back(cut.is_uneven ? uneven_piece(index, count, extent)
                                 : Piece{index * size, (index + 1) * size});
  }
  return held;
}

}  // namespace weft
