// parallel/pieces.cpp: equal pieces of whole units; for a vocabulary, pieces of a rounded size.
#include "parallel/pieces.h"

#include <algorithm>
#include <numeric>

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
  const int64_t here = mesh.pieces_per_rank(), readers = mesh.pieces / units;
  ensure(
      mesh.pieces % units == 0 && (here % readers == 0 || readers % here == 0),
      fmt::format("{} units cannot be cut into {} pieces, {} per rank", units, mesh.pieces, here));
  const int64_t leaves = std::min(here, readers);
  std::vector<Piece> held;
  for (int64_t index = mesh.rank * here; index < (mesh.rank + 1) * here; index += leaves) {
    const int64_t unit = index / readers;
    held.push_back({unit * unit_size, (unit + 1) * unit_size, static_cast<int>(readers / leaves),
                    index % readers == 0, static_cast<int>(leaves)});
  }
  return held;
}

// Units that do not divide evenly over the ranks: the least common multiple of leaves.
std::vector<Piece> spread_pieces(const TensorParallel& mesh, int64_t unit_size, int64_t units) {
  const int64_t here = leaves_of_spread_units(units, mesh.tp);
  const int64_t readers = here * mesh.tp / units;
  std::vector<Piece> held;
  for (int64_t leaf = mesh.rank * here; leaf < (mesh.rank + 1) * here; ++leaf) {
    const int64_t begin = leaf / readers * unit_size;
    if (!held.empty() && held.back().begin == begin) {
      ++held.back().leaves;
    } else {
      held.push_back({begin, begin + unit_size});
    }
  }
  for (const SharedUnit& shared : shared_units(units, mesh.tp)) {
    for (Piece& piece : held) {
      if (piece.begin != shared.unit * unit_size) continue;
      piece.copies = shared.num_ranks;
      piece.is_first_copy = shared.first_rank == mesh.rank;
      piece.copy_group = shared.copy_group;
    }
  }
  return held;
}

}  // namespace

int64_t leaves_of_spread_units(int64_t units, int tp) { return units / std::gcd(units, tp); }

std::vector<SharedUnit> shared_units(int64_t units, int tp) {
  std::vector<SharedUnit> shared;
  if (units % tp == 0 || tp % units == 0) return shared;
  const int64_t here = leaves_of_spread_units(units, tp), readers = here * tp / units;
  for (int64_t unit = 0; unit < units; ++unit) {
    const auto first = static_cast<int>(unit * readers / here);
    const auto last = static_cast<int>(((unit + 1) * readers - 1) / here);
    if (first == last) continue;
    shared.push_back({unit, first, last - first + 1, static_cast<int>(shared.size() % 2)});
  }
  return shared;
}

std::vector<Piece> pieces_of(const TensorParallel& mesh, const Cut& cut, int64_t extent) {
  const int64_t count = mesh.pieces, units = extent / cut.unit;
  if (!cut.is_uneven && units % count != 0) {
    const bool is_spread = !mesh.is_exact && count % units != 0;
    return is_spread ? spread_pieces(mesh, cut.unit, units) : copied_pieces(mesh, cut.unit, units);
  }
  std::vector<Piece> held;
  for (int64_t i = 0; i < mesh.pieces_per_rank(); ++i) {
    const int64_t index = mesh.rank * mesh.pieces_per_rank() + i, size = units / count * cut.unit;
    held.push_back(cut.is_uneven ? uneven_piece(index, count, extent)
                                 : Piece{index * size, (index + 1) * size});
  }
  return held;
}

}  // namespace weft
