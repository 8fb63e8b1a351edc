// verify/verify.h: trains a run file in several layouts and compares them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "verify/verify_compare.h"

namespace weft {

struct VerifyOptions {
  std::string run, layouts;
  std::vector<std::string> sets;
  std::optional<int64_t> steps;
  std::filesystem::path out;  // empty: <storage>/<name>-verify
  std::optional<double> max_diff, mean_diff;
};

struct VerifyReport {
  std::filesystem::path out;
  std::string title;
  std::vector<VerifyResult> layouts;  // the first is the base
  int stop_signal = 0;                // that ended it early

  bool ok() const;
  Json to_json() const;  // docs/contract.md, JSON output
  std::string to_text() const;
};

// Each layout is a `weft train` child process, one after another. All errors in the input are
// reported before the first starts. In `out`: a run directory and a log per layout,
// loss_<label>.json, verify.json, verify.png and verify.svg.
VerifyReport verify(const VerifyOptions& options);

}  // namespace weft
