// verify/verify_compare.cpp: numbers, bits, and the first place where they differ.
#include "verify/verify_compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "train/tensor_hashes.h"

namespace weft {
namespace {

// fp32: the sums of two layouts only round differently; bf16: the same, amplified by training
// (docs/verify.md explains the numbers).
constexpr double kMaxFp32 = 1e-5, kMaxBf16 = 5e-3, kMeanBf16 = 1e-3;
// A gradient that is wrong in one tensor shows in that tensor's norm at once, in the norm of all by
// the square of its share, and in the losses only after some updates. Negligible gradients (K's
// bias has only rounding noise) are measured against the overall norm.
constexpr double kNormFp32 = 1e-4, kNormBf16 = 5e-2;
constexpr double kGradientFp32 = 1e-2, kGradientBf16 = 0.3;
constexpr double kFloorFp32 = 1e-3, kFloorBf16 = 1e-2;
// Near convergence a gradient is the remainder of cancelling addends: its rounding error stays
// while the norm shrinks. So a norm counts as at least this fraction of the largest before it.
constexpr double kNormFloorFp32 = 1e-2, kNormFloorBf16 = 0.1;

template <typename Fn>
void each_line(const std::filesystem::path& path, const Fn& fn) {
  if (!std::filesystem::exists(path)) return;
  const std::string text = read_file(path);
  for (size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    fn(parse_json(std::string_view(text).substr(at, end - at), path.string()));
  }
}

std::optional<double> number_of(const Json& line, const char* key) {
  const Json* found = line.find(key);
  if (!found || !found->is_number()) return std::nullopt;
  return found->as_number();
}

bool same_bits(const std::optional<double>& a, const std::optional<double>& b) {
  if (a.has_value() != b.has_value()) return false;
  return !a || std::bit_cast<uint64_t>(*a) == std::bit_cast<uint64_t>(*b);
}

double difference(const std::optional<double>& a, const std::optional<double>& b) {
  if (!a && !b) return 0;
  if (!a || !b || std::isnan(*a - *b)) return std::numeric_limits<double>::infinity();
  return std::abs(*a - *b);
}

// A norm missing on one side is an fp16 step that overflowed there; its loss is still compared.
double relative_difference(const std::optional<double>& a, const std::optional<double>& b,
                           double floor) {
  if (!a || !b || *a == *b) return 0;
  const double d = difference(a, b);
  return std::isinf(d) ? d : d / std::max({std::abs(*a), std::abs(*b), floor});
}

void summarize(const VerifyRun& run, VerifyResult* r) {
  double sum = 0;
  int64_t count = 0;
  for (const VerifyRun::Step& s : run.steps) {
    if (!s.loss) continue;
    if (!r->initial) r->initial = s.loss;
    r->final = s.loss;
    r->min = std::min(r->min.value_or(*s.loss), *s.loss);
    sum += *s.loss;
    ++count;
  }
  if (count > 0) r->mean = sum / static_cast<double>(count);
  if (!run.evals.empty()) r->eval = run.evals.back();
}

void note_bad_step(VerifyResult* r, int64_t step) {
  if (!r->first_bad_step || step < *r->first_bad_step) r->first_bad_step = step;
}

void compare_steps(const VerifyRun& base, const VerifyRun& run, VerifyResult* r) {
  double sum = 0, largest_norm = 0;
  r->num_steps = static_cast<int64_t>(std::min(base.steps.size(), run.steps.size()));
  for (size_t i = 0; i < static_cast<size_t>(r->num_steps); ++i) {
    const VerifyRun::Step &a = base.steps[i], &b = run.steps[i];
    const double d = difference(a.loss, b.loss);
    largest_norm = std::max(largest_norm, a.grad_norm.value_or(0));
    const double floor = r->bars.norm_floor * largest_norm;
    r->differences.push_back({a.step, d, relative_difference(a.grad_norm, b.grad_norm, floor)});
    r->norm_diff = std::max(r->norm_diff, r->differences.back().norm);
    r->max_diff = std::max(r->max_diff, d);
    r->final_diff = d;
    sum += d;
    const bool loss = !same_bits(a.loss, b.loss), norm = !same_bits(a.grad_norm, b.grad_norm);
    r->losses_different += loss;
    r->norms_different += norm;
    if (r->bars.bits && (loss || norm)) note_bad_step(r, a.step);
  }
  if (r->num_steps > 0) r->mean_diff = sum / static_cast<double>(r->num_steps);
  r->num_evals = static_cast<int64_t>(std::min(base.evals.size(), run.evals.size()));
  for (size_t i = 0; i < static_cast<size_t>(r->num_evals); ++i) {
    r->evals_different += !same_bits(base.evals[i], run.evals[i]);
  }
}

struct HashLine {
  int64_t step = 0;
  Json::Object tensors;  // name to hash, in the order of the file
  // Name to norm of its gradient, finite ones only; used where bits may differ.
  std::vector<std::pair<std::string, double>> norms;
};

// The lines of a hash file, one after another.
class HashLines {
 public:
  explicit HashLines(const std::filesystem::path& path) : path_(path.string()) {
    if (std::filesystem::exists(path) && std::filesystem::file_size(path) > 0) file_.emplace(path);
  }
  std::optional<HashLine> next() {
    if (!file_) return std::nullopt;
    const size_t end = file_->text().find('\n', at_);
    if (end == std::string_view::npos) return std::nullopt;
    const Json line = parse_json(file_->text().substr(at_, end - at_), path_);
    at_ = end + 1;
    HashLine read{line.at("step").as_int(), {}, {}};
    if (const Json* tensors = line.find("tensors")) read.tensors = tensors->as_object();
    if (const Json* norms = line.find("norms")) {
      for (const auto& [name, norm] : norms->as_object()) {
        if (norm.is_number()) read.norms.emplace_back(name, norm.as_number());
      }
    }
    return read;
  }

 private:
  std::string path_;
  std::optional<MappedFile> file_;
  size_t at_ = 0;
};

// Names of tensors whose hashes differ, or that are missing on one side; those in a first.
std::vector<std::string> different_tensors(const HashLine& a, const HashLine& b) {
  std::vector<std::string> names;
  if (a.tensors == b.tensors) return names;  // almost always
  const Json left(a.tensors), right(b.tensors);
  for (const auto& [name, hash] : a.tensors) {
    const Json* other = right.find(name);
    if (!other || *other != hash) names.push_back(name);
  }
  for (const auto& [name, hash] : b.tensors) {
    if (!left.find(name)) names.push_back(name);
  }
  return names;
}

// The gradient that differs most in this step. Keeps the first step beyond the tolerance, and its
// tensor. largest_norm: the base's overall norm, maximum so far.
void compare_gradients(const HashLine& a, const HashLine& b, double* largest_norm,
                       VerifyResult* r) {
  double squares = 0, largest = 0;
  for (const auto& [name, norm] : a.norms) squares += norm * norm;
  *largest_norm = std::max(*largest_norm, std::sqrt(squares));
  const double whole = std::max(std::sqrt(squares), r->bars.norm_floor * *largest_norm);
  const double floor = r->bars.gradient_floor * whole;
  const std::map<std::string_view, double> others(b.norms.begin(), b.norms.end());
  std::string worst;
  for (const auto& [name, norm] : a.norms) {
    const auto other = others.find(name);
    if (other == others.end()) continue;  // copies, which this layout sums later
    if (!r->gradient_diff) r->gradient_diff = 0;
    const double most = std::max({norm, other->second, floor});
    const double d = most > 0 ? std::abs(norm - other->second) / most : 0;
    if (d <= largest) continue;
    largest = d;
    worst = name;
  }
  if (largest > r->gradient_diff.value_or(0)) r->gradient_diff = largest;
  if (!r->bars.gradient || largest <= *r->bars.gradient || r->tensor) return;
  r->tensor = worst;
  r->broken.push_back(fmt::format("{} of step {} differs by {:.3g} of its norm, over {:g}", worst,
                                  a.step, largest, *r->bars.gradient));
  note_bad_step(r, a.step);
}

// The next lines of one step. Steps that only one of the two wrote (the other's overflowed in fp16)
// are skipped, and then the files do not match.
bool next_pair(HashLines* left, HashLines* right, std::optional<HashLine>* a,
               std::optional<HashLine>* b, bool* match) {
  *a = left->next();
  *b = right->next();
  while (*a && *b && (*a)->step != (*b)->step) {
    *match = false;
    if ((*a)->step < (*b)->step) {
      *a = left->next();
    } else {
      *b = right->next();
    }
  }
  if (a->has_value() != b->has_value()) *match = false;
  return *a && *b;
}

void compare_tensors(const VerifyRun& base, const VerifyRun& run, VerifyResult* r) {
  HashLines left(base.hashes), right(run.hashes);
  std::set<std::string> known, seen_different;
  double largest_norm = 0;
  std::optional<HashLine> a, b;
  while (next_pair(&left, &right, &a, &b, &r->hashes_are_whole)) {
    if (!r->bars.bits && a->step > 0) {  // hashes are expected to differ
      compare_gradients(*a, *b, &largest_norm, r);
      continue;
    }
    const std::vector<std::string> names = different_tensors(*a, *b);
    for (const auto& [name, hash] : a->tensors) known.insert(name);
    known.insert(names.begin(), names.end());  // also what only the other one has
    r->num_tensors = static_cast<int64_t>(known.size());
    r->different_at_end = static_cast<int64_t>(names.size());
    for (const std::string& name : names) {
      if (seen_different.insert(name).second) r->tensors_different.push_back(name);
    }
    if (names.empty()) continue;
    // The tensor of the first step at which anything differs: a norm may differ earlier.
    if (!r->tensor && (!r->first_bad_step || a->step <= *r->first_bad_step)) r->tensor = names[0];
    note_bad_step(r, a->step);
  }
}

// "... step 3: NAME differs between ranks 1 and 0": compare_copies's error about a bad copy; the
// supervisor prefixes the rank.
void read_copy_error(const std::string& error, VerifyResult* r) {
  const size_t end = error.find(" differs between ranks ");
  if (r->tensor || end == std::string::npos) return;
  const size_t colon = error.rfind(": ", end);
  if (colon != std::string::npos) r->tensor = error.substr(colon + 2, end - colon - 2);
}

void judge_numbers(VerifyResult* r) {
  const Bars& bars = r->bars;
  const auto first_above = [&](double bar, double StepDifference::*of) {
    for (const StepDifference& d : r->differences) {
      if (!(d.*of <= bar)) return note_bad_step(r, d.step);
    }
  };
  const bool max_broken = bars.max && !(r->max_diff <= *bars.max);
  const bool mean_broken = bars.mean && !(r->mean_diff <= *bars.mean);
  if (max_broken)
    r->broken.push_back(fmt::format("max difference {:.3g} exceeds {:g}", r->max_diff, *bars.max));
  if (mean_broken)
    r->broken.push_back(
        fmt::format("mean difference {:.3g} exceeds {:g}", r->mean_diff, *bars.mean));
  if (max_broken) first_above(*bars.max, &StepDifference::loss);
  if (mean_broken && !max_broken) first_above(*bars.mean, &StepDifference::loss);
  if (!bars.norm || r->norm_diff <= *bars.norm) return;
  r->broken.push_back(fmt::format("gradient norms differ by {:.3g} of themselves, over {:g}",
                                  r->norm_diff, *bars.norm));
  first_above(*bars.norm, &StepDifference::norm);
}

void judge_bits(VerifyResult* r) {
  const auto count = [&](int64_t different, int64_t of, const char* what) {
    if (different > 0)
      r->broken.push_back(fmt::format("{} of {} {} differ in bits", different, of, what));
  };
  count(r->losses_different, r->num_steps, "losses");
  count(r->norms_different, r->num_steps, "gradient norms");
  count(r->evals_different, r->num_evals, "evaluation losses");
  if (!r->tensors_different.empty())
    r->broken.push_back(fmt::format(
        "{} of {} tensors (gradients, weights, states) differ in bits, {} of them at the last step",
        r->tensors_different.size(), r->num_tensors, r->different_at_end));
  if (r->num_tensors == 0) r->broken.push_back("no tensor hashes were written");
  if (!r->hashes_are_whole && r->error.empty())
    r->broken.push_back("the runs wrote hashes of different numbers of steps");
}

}  // namespace

VerifyRun read_verify_run(const std::filesystem::path& dir, const std::string& name) {
  VerifyRun run;
  run.name = name;
  each_line(dir / "metrics.jsonl", [&](const Json& line) {
    const Json* step = line.find("step");
    if (step && line.find("loss"))
      run.steps.push_back({step->as_int(), number_of(line, "loss"), number_of(line, "grad_norm")});
    if (step && line.find("eval_loss")) run.evals.push_back(number_of(line, "eval_loss"));
  });
  run.hashes = dir / kHashesFile;
  return run;
}

Bars choose_bars(bool exact, bool bf16, std::optional<double> max, std::optional<double> mean) {
  Bars bars;
  bars.bits = exact;
  bars.max_is_given = max.has_value();
  bars.mean_is_given = mean.has_value();
  bars.max = max;
  bars.mean = mean;
  const double default_max = bf16 ? kMaxBf16 : kMaxFp32;
  if (!exact && !max) bars.max = default_max;
  if (!exact && !mean && bf16) bars.mean = kMeanBf16;
  if (!exact && *bars.max <= default_max) {
    bars.norm = bf16 ? kNormBf16 : kNormFp32;
    bars.norm_floor = bf16 ? kNormFloorBf16 : kNormFloorFp32;
    bars.gradient = bf16 ? kGradientBf16 : kGradientFp32;
    bars.gradient_floor = bf16 ? kFloorBf16 : kFloorFp32;
  }
  return bars;
}

std::string Bars::to_text() const {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (bits) add("no bit may differ");
  if (max) add(fmt::format("max {:g}{}", *max, max_is_given ? "" : " by default"));
  if (mean) add(fmt::format("mean {:g}{}", *mean, mean_is_given ? "" : " by default"));
  if (norm) add(fmt::format("norms {:g}", *norm));
  if (gradient) add(fmt::format("gradients {:g}", *gradient));
  return text;
}

VerifyResult compare_runs(const VerifyRun& base, const VerifyRun& run, const Bars& bars) {
  VerifyResult r;
  r.name = run.name;
  r.error = run.error;
  r.bars = bars;
  summarize(run, &r);
  compare_steps(base, run, &r);
  compare_tensors(base, run, &r);
  if (!r.gradient_diff) r.bars.gradient.reset();  // a tolerance that was never applied
  if (!run.error.empty()) {
    r.broken.push_back("the run failed: " + run.error);
  } else if (base.steps.size() != run.steps.size() || base.evals.size() != run.evals.size()) {
    r.broken.push_back(fmt::format("{} steps and {} evaluations, but the base has {} and {}",
                                   run.steps.size(), run.evals.size(), base.steps.size(),
                                   base.evals.size()));
  } else if (run.steps.empty()) {
    r.broken.push_back("no step was compared");
  }
  // Even where only losses are checked, all layouts must start with the same weights.
  if (!bars.bits && r.first_bad_step == 0) r.broken.push_back("the initial weights differ");
  judge_numbers(&r);
  if (bars.bits) judge_bits(&r);
  // A run that ended early failed where its lines end, unless a difference came earlier.
  if (!run.error.empty() && !r.first_bad_step) {
    r.first_bad_step = run.steps.empty() ? 0 : run.steps.back().step;
    read_copy_error(run.error, &r);
  }
  return r;
}

Json VerifyResult::to_json() const {
  const auto number = [](const std::optional<double>& v) { return v ? Json(*v) : Json(); };
  Json j;
  j.set("layout", Json(name));
  j.set("initial", number(initial));
  j.set("final", number(final));
  j.set("min", number(min));
  j.set("mean", number(mean));
  j.set("max_diff", Json(max_diff));
  j.set("mean_diff", Json(mean_diff));
  j.set("final_diff", Json(final_diff));
  j.set("first_bad_step", first_bad_step ? Json(*first_bad_step) : Json());
  j.set("tensor", tensor ? Json(*tensor) : Json());
  return j;
}

}  // namespace weft
