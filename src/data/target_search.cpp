// data/target_search.cpp: the search, and the error where it finds nothing.
//
// It costs no more than training would: rows are looked at in the order of the first steps, and the
// first that has a target ends it. Up to there no step would have a loss.
#include "data/target_search.h"

#include "base/error.h"
#include "base/log.h"
#include "data/batch_builder.h"

namespace weft {
namespace {

constexpr int64_t kLong = 100'000;  // rows after which the search is worth a message

std::string looked_for(const DataConfig& c) {
  if (!c.messages.empty()) {
    return fmt::format("searched for turns with the role assistant in column '{}'", c.messages);
  }
  if (!c.target.empty()) return fmt::format("searched for tokens of data.target: \"{}\"", c.target);
  return fmt::format("searched for a second token in data.text: \"{}\"",
                     c.text.empty() ? "{text}" : c.text);
}

std::string hint_for(const DataConfig& c, bool has_cut) {
  if (has_cut && !c.messages.empty()) {
    return "raise data.seq_length: the rest of each row is cut off, including the answers; "
           "`weft inspect RUN.yaml` shows which tokens are labels";
  }
  if (!c.messages.empty()) {
    return "set data.messages to the column of whole conversations: only the assistant's turns are "
           "learned; to learn a whole text, set data.text instead";
  }
  if (!c.target.empty()) {
    return "set data.target to a template over a column that has text, or data.append_eos: true to "
           "learn that the answer is empty";
  }
  return "set data.text to a template over a column that has text";
}

[[noreturn]] void refuse(const DataConfig& c, const TargetSearch& search, const std::string& which,
                         const char* consequence) {
  const std::string cut = search.truncated == 0
                              ? ""
                              : fmt::format("; {} of the rows are cut to data.seq_length {}",
                                            search.truncated, c.seq_length);
  throw UserError(fmt::format("none of the {} rows {} has a target, so {}: {}{}", search.rows,
                              which, consequence, looked_for(c), cut),
                  hint_for(c, search.truncated > 0));
}

// Counts a row that is kept.
void add_row(bool has_label, bool is_truncated, TargetSearch* found) {
  found->is_found = has_label;
  found->truncated += is_truncated;
  if (++found->rows == kLong && !found->is_found) {
    log_warning("data: none of the first {} rows has a target; looking further", kLong);
  }
}

}  // namespace

void refuse_without_targets(const DataConfig& c, const TargetSearch& search) {
  refuse(c, search, search.is_whole ? "of data.train" : "that the run uses",
         "nothing would be learned");
}

void require_eval_targets(const DataConfig& c, const ExampleMaker& maker, const RowSource& rows,
                          int64_t num_rows, const std::function<bool(int64_t)>& is_member,
                          const std::string& which) {
  TargetSearch found;
  Row row;
  Example example;
  for (int64_t i = 0; i < num_rows; ++i) {
    if (!is_member(i)) continue;
    rows.read(i, row);
    if (!maker.make(rows, i, row, example)) continue;
    add_row(example.has_label(), example.truncated, &found);
    if (found.is_found) return;
  }
  if (found.rows > 0) refuse(c, found, which, "there is no loss to measure");
  throw UserError(fmt::format("no row {} is kept: all have one token or less, so there is no loss "
                              "to measure",
                              which),
                  hint_for(c, false));
}

// Uses only the cache, so it may run concurrently with the thread that fills batches.
TargetSearch BatchBuilder::search_target(const StreamState& from, int64_t most) {
  const Order order = make_order(from.epoch);
  TargetSearch found;
  CachedRow info;
  const auto look = [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end && !found.is_found && found.rows < most; ++p) {
      const int64_t row = order.at(p);
      if (!is_member(row)) continue;
      cache_.read_length(row, info);
      if (info.dropped) continue;
      add_row(info.has_label, info.truncated, &found);
    }
  };
  look(from.position, num_rows_);
  if (found.is_found || found.rows >= most) return found;
  most = INT64_MAX;  // the run uses rows of the next epoch: any of them
  look(0, from.position);
  found.is_whole = true;
  return found;
}

}  // namespace weft
