// verify/verify_layouts.h: "dp=2; dp=2,shard=zero3": the layouts in which a run is verified.
#pragma once

#include <string>
#include <vector>

namespace weft {

struct VerifyLayout {
  std::string name;               // as given, without blanks: "dp=2,shard=zero3"
  std::string label;              // for files: "dp_2_shard_zero3"
  std::vector<std::string> sets;  // section.key=value, overrides the run file
};

// Layouts are separated by semicolons, their keys by commas. A layout is self-contained: dp and tp
// are 1 and shard is none unless it sets them, whatever the run file says; mode, exact_tp,
// exact_dp, exact_rows, micro_batch, recompute and threads default to the run file's. UserError
// with all complaints: an unknown key with the nearest known one, a duplicate layout, fewer than
// two.
std::vector<VerifyLayout> parse_layouts(const std::string& text);

}  // namespace weft
