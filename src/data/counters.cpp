// data/counters.cpp: sums counters, and describes them.
#include "data/counters.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

namespace weft {
double tokens_per_position(int64_t tokens, int64_t positions) {
  return positions == 0 ? 1 : static_cast<double>(tokens) / static_cast<double>(positions);
}

void DataCounters::add(const DataCounters& more) {
  for (const auto count : kDataCounts) this->*count += more.*count;
  for (const std::string& name : more.first_repaired) {
    const bool is_known =
        std::find(first_repaired.begin(), first_repaired.end(), name) != first_repaired.end();
    if (first_repaired.size() < kNamedRows && !is_known) first_repaired.push_back(name);
  }
  if (first_untargeted.empty()) first_untargeted = more.first_untargeted;
}

std::string DataCounters::describe() const {
  std::string out;
  auto list = [&out](int64_t count, std::string_view what) {
    if (count == 0) return;
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, what);
  };
  list(dropped, "rows dropped (one token or less)");
  list(truncated, "rows cut to data.seq_length or data.target_length");
  if (sources_cut + targets_cut > 0)
    out += fmt::format(" ({} in the source, {} in the target)", sources_cut, targets_cut);
  list(split, "rows split");
  list(nulls, "null cells treated as empty");
  list(unanswered, "rows without an answer (only the closing token is learned)");
  list(untargeted, "rows without a target (nothing is learned from them)");
  list(repaired, "rows with invalid UTF-8 repaired");
  list(incomplete, "rows left over at the end of an epoch");
  list(padding, "positions of padding");
  if (padding > 0) out += fmt::format(" ({:.1f} % of all)", 100 * (1 - efficiency()));
  return out;
}

double DataCounters::efficiency() const { return tokens_per_position(tokens, tokens + padding); }

}  // namespace weft
