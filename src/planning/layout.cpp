// planning/layout.cpp: checks divisibility.
#include "planning/layout.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "config/session.h"
#include "io/hf_folder.h"
#include "kernel/kernels.h"

namespace weft {
namespace {

constexpr int kMostLeaves = 8;

Shard shard_of(const std::string& name) {
  if (name == "zero1") return Shard::kZero1;
  if (name == "zero2") return Shard::kZero2;
  return name == "none" ? Shard::kNone : Shard::kZero3;  // zero3, and its alias fsdp
}

// How units may be copied (key/value heads): not at all, all equally, or only some of them.
enum class Copies { kNone, kAlike, kAny };

int64_t units_of(const ParameterSpec& p) {
  return p.shape[static_cast<size_t>(p.cut.dim)] / p.cut.unit;
}

// One product refers to q once, and to every leaf of k and v.
int64_t parts_of_spread_units(int64_t units, int64_t tp) {
  return 1 + 2 * leaves_of_spread_units(units, static_cast<int>(tp));
}

bool can_cut_units(const CutRule& cut, int64_t units, int64_t pieces, Copies copies) {
  if (units % pieces == 0 || cut.is_shared) return true;
  if (!cut.may_copy || copies == Copies::kNone || units == 0) return false;
  if (pieces % units == 0) return true;
  return copies == Copies::kAny && parts_of_spread_units(units, pieces) <= kMaxParts;
}

// Whether every cut parameter can have this many pieces.
bool can_cut(const std::vector<ParameterSpec>& parameters, int64_t pieces, Copies copies) {
  for (const ParameterSpec& p : parameters) {
    if (p.cut.dim < 0 || p.cut.is_uneven) continue;
    if (!can_cut_units(p.cut, units_of(p), pieces, copies)) return false;
  }
  return true;
}

std::string list_admissible(const std::vector<int64_t>& values) {
  std::string text;
  for (int64_t v : values) text += fmt::format("{}{}", text.empty() ? "" : ", ", v);
  return text;
}

// The largest power of two up to eight that `fits` accepts.
template <typename Fits>
int64_t largest_power(const Fits& fits) {
  int64_t best = 1;
  for (int64_t p = 2; p <= kMostLeaves; p *= 2) {
    if (fits(p)) best = p;
  }
  return best;
}

bool is_power_of_two(int64_t v) { return v > 0 && (v & (v - 1)) == 0; }

template <typename Fits>
std::string list_tp(const Fits& fits) {
  constexpr int64_t kMostTp = 64;  // of the run file
  std::vector<int64_t> good;
  for (int64_t t = 1; t <= kMostTp; ++t) {
    if (fits(t)) good.push_back(t);
  }
  return list_admissible(good);
}

// What must be cut, each kind once ("28 attention heads"), and which of it tp does not divide, or
// would need more pieces than a product supports.
void check_tp(const std::vector<ParameterSpec>& parameters, int64_t tp) {
  if (can_cut(parameters, tp, Copies::kAny)) return;
  std::vector<std::string> seen, failed, reasons, causes;
  for (const ParameterSpec& p : parameters) {
    if (p.cut.dim < 0 || p.cut.is_uneven) continue;
    const int64_t units = units_of(p);
    const std::string what = fmt::format("{} {}", units, p.cut.what);
    if (std::find(seen.begin(), seen.end(), what) != seen.end()) continue;
    seen.push_back(what);
    const auto fits = [&](int64_t t) { return can_cut_units(p.cut, units, t, Copies::kAny); };
    if (!fits(tp) && p.cut.may_copy) {
      reasons.push_back(fmt::format("would need {} pieces in one product (of {}), at most {}",
                                    parts_of_spread_units(units, tp), what, kMaxParts));
    } else if (!fits(tp)) {
      failed.push_back(what);
    }
    if (!fits(tp) || !p.cut.may_copy)
      causes.push_back(fmt::format("{} allow {}", what, list_tp(fits)));
  }
  if (!failed.empty())
    reasons.insert(reasons.begin(), fmt::format("does not divide {}", fmt::join(failed, ", nor ")));
  throw UserError(
      fmt::format("parallel.tp={} {}", tp, fmt::join(reasons, ", and ")),
      fmt::format("admissible values of parallel.tp: {}, since {}",
                  list_tp([&](int64_t t) { return can_cut(parameters, t, Copies::kAny); }),
                  fmt::join(causes, "; ")));
}

// What a user may set: even more leaves than key/value heads.
std::vector<int64_t> admissible_exact_tp(const Model& model) {
  const std::vector<ParameterSpec> parameters = model.parameters();
  std::vector<int64_t> good;
  for (int64_t s = 1; s <= kMostLeaves; s *= 2) {
    if (can_cut(parameters, s, Copies::kAlike)) good.push_back(s);
  }
  return good;
}

int64_t resolve_exact_tp(const RunConfig& c, const Model& model) {
  const int64_t wanted = c.parallel.exact_tp;
  if (wanted == 0) {
    const std::vector<ParameterSpec> parameters = model.parameters();
    return largest_power([&](int64_t s) { return can_cut(parameters, s, Copies::kNone); });
  }
  const std::vector<int64_t> good = admissible_exact_tp(model);
  if (std::find(good.begin(), good.end(), wanted) == good.end()) {
    throw UserError(
        fmt::format("parallel.exact_tp={} must be a power of two up to {} that divides the model's "
                    "heads and feed-forward width, and divides or is a multiple of its key/value "
                    "heads",
                    wanted, kMostLeaves),
        fmt::format("admissible: {}", list_admissible(good)));
  }
  return wanted;
}

int64_t resolve_exact_dp(const RunConfig& c) {
  const int64_t rows = c.parallel.exact_rows, leaves = c.train.global_batch / rows;
  const auto fits = [&](int64_t v) { return leaves % v == 0; };
  const int64_t wanted = c.parallel.exact_dp;
  if (wanted == 0) return largest_power(fits);
  constexpr int64_t kMostGroups = 256;  // as many levels as a product can have addends
  if (!is_power_of_two(wanted) || wanted > kMostGroups || !fits(wanted)) {
    throw UserError(fmt::format("parallel.exact_dp={} must be a power of two up to {} that divides "
                                "global_batch / exact_rows = {}",
                                wanted, kMostGroups, leaves),
                    fmt::format("leave it at 0 for {}", largest_power(fits)));
  }
  return wanted;
}

// For a tp that does not divide exact_tp.
std::string exact_tp_hint(const Model& model, const Layout& l) {
  std::string text = "admissible values of parallel.tp: " + list_divisors(l.exact_tp);
  if (l.tp > kMostLeaves) {
    return text + fmt::format(
                      "; exact mode has at most {} leaves, whatever the model: use more "
                      "parallel.dp, or parallel.mode=fast",
                      kMostLeaves);
  }
  for (int64_t s : admissible_exact_tp(model)) {
    if (s % l.tp != 0) continue;
    return text + fmt::format("; or set parallel.exact_tp={}, in all layouts to be compared", s);
  }
  return text + fmt::format("; parallel.mode=fast accepts parallel.tp={}", l.tp);
}

void resolve_exact(const RunConfig& c, const Model& model, Layout* l) {
  l->is_exact = true;
  l->exact_rows = c.parallel.exact_rows;
  l->exact_tp = static_cast<int>(resolve_exact_tp(c, model));
  l->exact_dp = resolve_exact_dp(c);
  if (l->exact_tp % l->tp != 0) {
    throw UserError(
        fmt::format("in exact mode parallel.tp={} must divide exact_tp={}", l->tp, l->exact_tp),
        exact_tp_hint(model, *l));
  }
  const int64_t leaves = c.train.global_batch / l->exact_rows;
  if (leaves % l->dp != 0) {
    throw UserError(fmt::format("in exact mode parallel.dp={} must divide global_batch / "
                                "exact_rows = {}",
                                l->dp, leaves),
                    fmt::format("admissible values of parallel.dp: {}", list_divisors(leaves)));
  }
}

}  // namespace

std::vector<std::vector<int>> Layout::copy_groups() const {
  std::vector<std::vector<int>> colors;
  if (spread_units == 0 && copies > 1) {
    colors.emplace_back();
    for (int rank = 0; rank < num_ranks(); ++rank) colors[0].push_back(rank / copies);
  }
  for (const SharedUnit& shared : shared_units(spread_units, tp)) {
    const auto group = static_cast<size_t>(shared.copy_group);
    while (colors.size() <= group) {  // each alone, until a unit joins neighbours
      colors.emplace_back();
      for (int rank = 0; rank < num_ranks(); ++rank) colors.back().push_back(rank);
    }
    for (int rank = 0; rank < num_ranks(); ++rank) {
      const int behind = tp_rank(rank) - shared.first_rank;
      if (behind >= 0 && behind < shared.num_ranks)
        colors[group][static_cast<size_t>(rank)] = rank - behind;
    }
  }
  return colors;
}

TensorParallel Layout::tensor(int rank) const {
  return {tp, tp_rank(rank), is_exact ? exact_tp : tp, is_exact};
}

DataParallel Layout::data(int rank, int64_t num_passes) const {
  return {dp,       dp_rank(rank), dp > 1 ? shard : Shard::kNone, static_cast<int>(num_passes),
          is_exact, exact_dp};
}

Layout resolve_layout(const RunConfig& c, const Model& model) {
  Layout l;
  l.dp = static_cast<int>(c.parallel.dp);
  l.tp = static_cast<int>(c.parallel.tp);
  l.shard = shard_of(c.parallel.shard);
  const std::vector<ParameterSpec> parameters = model.parameters();
  check_tp(parameters, l.tp);
  for (const ParameterSpec& p : parameters) {
    if (!p.cut.may_copy) continue;
    const int64_t units = units_of(p);
    if (units == 1) continue;  // copies on all ranks: the axis is their group
    if (units % l.tp != 0 && l.tp % units != 0) l.spread_units = units;
    l.copies = std::max(l.copies, static_cast<int>(l.tp / units));
  }
  for (const SharedUnit& shared : shared_units(l.spread_units, l.tp)) {
    l.copies = std::max(l.copies, shared.num_ranks);
  }
  if (c.parallel.mode == "exact") resolve_exact(c, model, &l);
  return l;
}

Layout check_layout(const RunConfig& c) {
  const HfFolder folder(resolve_model_path(c.model.path));
  const auto model = open_model(c, folder);
  check_positions(c, *model);
  return resolve_layout(c, *model);
}

Cuts cuts_of(const Model& model) {
  Cuts cuts;
  for (const ParameterSpec& p : model.parameters()) {
    cuts[p.name] = {p.cut.dim, p.cut.unit, p.cut.is_uneven};
  }
  return cuts;
}

std::string describe(const Layout& layout) {
  constexpr const char* kShards[] = {"none", "zero1", "zero2", "zero3"};
  std::string text = fmt::format("dp={}", layout.dp);
  if (layout.tp > 1) text += fmt::format(",tp={}", layout.tp);
  if (layout.shard != Shard::kNone)
    text += fmt::format(",shard={}", kShards[static_cast<int>(layout.shard)]);
  return text;
}

}  // namespace weft
