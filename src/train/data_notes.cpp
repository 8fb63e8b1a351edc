// train/data_notes.cpp: warnings from the data's counters, and the error of a run without effect.
#include "train/data_notes.h"

#include "base/error.h"
#include "base/log.h"
#include "data/source_summary.h"

namespace weft {

void DataNotes::name_rows(const DataCounters& counters, RunRecord& record) {
  const std::vector<std::string>& repaired = counters.first_repaired;
  const bool has_new = !has_untargeted_ && !counters.first_untargeted.empty();
  if (num_repaired_ == repaired.size() && !has_new) return;
  record.clear_progress();
  for (; num_repaired_ < repaired.size(); ++num_repaired_) {
    log_warning("{}: bytes that are not UTF-8 were replaced", repaired[num_repaired_]);
  }
  if (!has_new) return;
  has_untargeted_ = true;
  log_warning(
      "{}: this row has no target, so nothing is learned from it; others like it are counted",
      counters.first_untargeted);
}

void report_sources(const DataConfig& data, const RowSource& rows, const RowSource* eval_rows) {
  log_info("data: {}", describe_source("train", rows, rows_taken(data, rows.size())));
  for (const std::string& line : describe_left_out(rows.left_out()))
    log_info("data: ignored in data.train: {}", line);
  if (!eval_rows || data.eval.empty()) return;
  log_info("data: {}", describe_source("eval", *eval_rows, rows_taken(data, eval_rows->size())));
  for (const std::string& line : describe_left_out(eval_rows->left_out()))
    log_info("data: ignored in data.eval: {}", line);
}

Json sources_to_json(const DataConfig& data, const RowSource& rows, const RowSource* eval_rows) {
  Json out;
  out.set("train", source_to_json(rows, rows_taken(data, rows.size())));
  if (eval_rows && !data.eval.empty())
    out.set("eval", source_to_json(*eval_rows, rows_taken(data, eval_rows->size())));
  return out;
}

void report_counters(const DataCounters& all) {
  DataCounters rest = all;
  rest.untargeted = 0;
  if (const std::string text = rest.describe(); !text.empty()) log_info("data: {}", text);
  if (all.untargeted > 0) {
    log_warning("data: {} of {} rows had no target: nothing was learned from them", all.untargeted,
                all.rows);
  }
}

void warn_of_untargeted(const DataCounters& all) {
  if (all.untargeted == 0) return;
  log_warning("evaluation: {} of {} rows have no target and do not count in the loss{}",
              all.untargeted, all.rows,
              all.first_untargeted.empty() ? "" : ", the first of them " + all.first_untargeted);
}

void check_learned(int64_t steps, int64_t updates, bool has_overflowed) {
  if (steps == 0 || updates > 0) return;
  throw RunError(
      fmt::format("none of the {} steps changed anything ({}): no final/ is written", steps,
                  has_overflowed ? "each overflowed in fp16" : "none had a target token"),
      has_overflowed
          ? "raise train.steps (each halves the loss scale), or set train.precision to bf16"
          : "`weft inspect RUN.yaml` shows which tokens are labels");
}

}  // namespace weft
