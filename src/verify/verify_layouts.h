// verify/verify_layouts.h: "dp=2; dp=2,shard=zero3": the layouts in which a run is verified.
#pragma once

#include <string>
#include <vector>

namespace weft {

struct VerifyLayout {
  std::string name;               // as given, without blanks: "dp=2,shard=zero3"
  std::string label;              // for files: "dp_2_shard_zero3"
  std::vector<std::string> sets;  // section.key=value, over the run file
};

// Layouts stand between semicolons, their keys between commas. A layout is whole: dp and tp are 1
// and shard is none where it does not name them, whatever the run file says; mode, exact_tp,
// exact_dp, exact_rows, micro_batch, recompute and threads are the run file's. UserError with all
// complaints: an unknown key with the nearest known one, a layout given twice, fewer than two.
std::vector<VerifyLayout> parse_layouts(const std::string& text);

}  // namespace weft
