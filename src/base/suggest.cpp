// base/suggest.cpp: optimal string alignment distance, three rows of the table at a time.
#include "base/suggest.h"

#include <algorithm>
#include <numeric>

namespace weft {

int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

std::optional<std::string> nearest(std::string_view got, const std::vector<std::string>& known) {
  std::optional<std::string> best;
  int best_distance = 0;
  for (const std::string& word : known) {
    const size_t longer = std::max(got.size(), word.size());
    const size_t shorter = std::min(got.size(), word.size());
    const int allowed = std::max(1, static_cast<int>(longer / 3));
    // Words of very different length are skipped: a hostile word may be a megabyte long.
    if (shorter == 0 || longer - shorter > static_cast<size_t>(allowed)) continue;
    const int distance = edit_distance(got, word);
    if (distance > allowed || (best && distance >= best_distance)) continue;
    best = word;
    best_distance = distance;
  }
  return best;
}

std::string did_you_mean(std::string_view got, const std::vector<std::string>& known) {
  const std::optional<std::string> word = nearest(got, known);
  return word ? ", did you mean \"" + *word + "\"?" : "";
}

}  // namespace weft
