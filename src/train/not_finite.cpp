// train/not_finite.cpp: causes of NaN, the likeliest first.
#include "train/not_finite.h"

#include <fmt/core.h>

#include <cmath>
#include <vector>

#include "base/error.h"
#include "checkpoint/list.h"

namespace weft {
namespace {

// Updates that were too large; not before the first one.
void add_rate(const TrainConfig& t, std::vector<std::string>* causes) {
  causes->push_back(fmt::format("train.lr is {:g}: try {:g}", t.schedule.lr, t.schedule.lr / 10));
  if (t.schedule.warmup_steps == 0)
    causes->emplace_back("train.warmup_steps is 0: the first steps use the full rate, try 100");
  if (t.clip_norm == 0)
    causes->emplace_back("train.clip_norm is off: set it to 1");
  else if (t.clip_norm > 1)
    causes->push_back(fmt::format("train.clip_norm is {:g}: try 1", t.clip_norm));
}

void add_precision(const TrainConfig& t, std::vector<std::string>* causes) {
  if (t.precision == "fp16") {
    causes->emplace_back(
        "train.precision is fp16, whose largest value is 65504: set it to bf16 or fp32");
  } else if (t.precision == "bf16") {
    causes->push_back(fmt::format("train.precision is bf16, with 8 bits of mantissa: try fp32{}",
                                  t.master_weights ? "" : ", or train.master_weights: true"));
  } else if (t.tf32) {
    causes->emplace_back("train.tf32 is on: set it to false");
  }
}

}  // namespace

std::string not_finite_hint(const RunConfig& c, int64_t updates) {
  std::vector<std::string> causes;
  const bool is_pretrained = c.model.init == "pretrained";
  const std::string weights = fmt::format(
      "the weights of {} may hold NaN or infinity themselves: `weft eval` with this run "
      "file shows it, and the download can be compared with its source",
      c.model.path);
  if (updates > 0) add_rate(c.train, &causes);
  if (updates == 0 && is_pretrained) causes.push_back(weights);
  add_precision(c.train, &causes);
  causes.emplace_back(
      "the rows of that step: very long or repeated ones; `weft inspect` on the run file shows "
      "batches");
  causes.emplace_back(
      "config.json of the model: rms_norm_eps, rope_theta and initializer_range as published");
  if (updates > 0 && is_pretrained) causes.push_back(weights);
  std::string hint = updates > 0 ? "check, in this order:"
                                 : "no update was made yet, so the learning rate is not the cause; "
                                   "check, in this order:";
  for (size_t i = 0; i < causes.size(); ++i) hint += fmt::format("\n    {}. {}", i + 1, causes[i]);
  return hint;
}

void check_finite(const RunConfig& config, const std::filesystem::path& run_dir, int64_t step,
                  double number, const char* what) {
  if (std::isfinite(number)) return;
  const auto saved = list_checkpoints(run_dir);
  throw RunError(fmt::format("the {} of step {} is {}; the last checkpoint is {}", what, step,
                             number, saved.empty() ? "none" : saved.back().string()),
                 not_finite_hint(config, step - 1));
}

}  // namespace weft
