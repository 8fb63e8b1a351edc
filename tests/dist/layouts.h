// tests/dist/layouts.h: one table of runs and layouts; each is trained as on one rank.
//
// Every file adds its runs with INSTANTIATE_TEST_SUITE_P(Name, Layouts, ...). The run on one rank
// is trained once per process, so that any selection of cases is cheap (tests/slots.txt).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/dist/mesh_run.h"

namespace weft::testing {

// Compares a result with that of one rank, by gtest's checks.
using Compare = std::function<void(const MeshResult& one, const MeshResult& other)>;

void expect_same_bits(const MeshResult& one, const MeshResult& other);

// Bars for losses, norms and the evaluation of every step, relative or absolute; 0: not compared.
struct Bars {
  double loss = 0, norm = 0, eval = 0;
};
Compare within(const Bars& relative);
Compare within_absolute(double loss, double relative_norm = 0);

struct LayoutRun {
  std::string name;  // unique in the program
  std::function<MeshRun()> make;
  Compare compare = expect_same_bits;
  // What else must hold on one rank; may be empty.
  std::function<void(const MeshResult& one)> check = {};
  int micro = 4;  // of the run on one rank
};

struct LayoutCase {
  LayoutRun run;
  Place place;
  bool is_always = false;  // in the run of every commit: its name ends with "_always"
};
void PrintTo(const LayoutCase& c, std::ostream* out);

// Every run in every place. The first run in the first place is in the run of every commit.
std::vector<LayoutCase> layout_cases(const std::vector<LayoutRun>& runs,
                                     const std::vector<Place>& places);
std::string layout_name(const ::testing::TestParamInfo<LayoutCase>& info);

// The run's result with dp 1, tp 1, trained when it is first wanted. Names are unique.
const MeshResult& train_once(const std::string& name, const MeshRun& run,
                             const Place& place = {1, 1, "none"});

class Layouts : public ::testing::TestWithParam<LayoutCase> {};

}  // namespace weft::testing
