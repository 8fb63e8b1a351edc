// tests/dist/family_run.h: small models of the families with kernels of their own (ALiBi, relative
// positions, cross attention), and batches of pairs for those that read a source.
#pragma once

#include "tests/dist/mesh_run.h"

namespace weft::testing {

// "bloom", "t5" (v1.0: relu, tied), "t5_v11" (gated, a head of its own). A vocabulary of 203 is cut
// unevenly; T5's heads are wider than its model.
Json family_config(const std::string& family, double dropout);

// Rows of a target and a source of very unequal lengths; packed: of as many segments on both sides.
Batch random_pairs(int64_t rows, weft::Lengths lengths, int64_t vocab, uint64_t seed, bool packed);

// `layout` is pad, pack, dynamic or padding (which is learned); lengths differ from step to step
// where it is dynamic.
struct FamilyRun {
  std::string family = "t5";
  const char* layout = "pad";
  const char* precision = "fp32";
  const char* mode = "exact";
  double dropout = 0.1;
  int steps = 4;
  weft::Lengths longest = {24, 40};
};
MeshRun make_family_run(const FamilyRun& wanted);

}  // namespace weft::testing
