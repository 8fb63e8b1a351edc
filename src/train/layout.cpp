// train/layout.cpp: what divides what.
#include "train/layout.h"

#include <algorithm>

#include "base/error.h"
#include "io/hf_folder.h"
#include "train/session.h"

namespace weft {
namespace {

constexpr int kMostLeaves = 8;

Shard shard_of(const std::string& name) {
  if (name == "zero1") return Shard::kZero1;
  if (name == "zero2") return Shard::kZero2;
  return name == "none" ? Shard::kNone : Shard::kZero3;  // zero3, and its alias fsdp
}

// Whether every cut parameter is whole units a piece; copies: or a whole number of pieces a unit.
bool can_cut(const Model& model, int64_t pieces, bool copies) {
  for (const ParameterSpec& p : model.parameters()) {
    if (p.cut.dim < 0 || p.cut.is_uneven) continue;
    const int64_t units = p.shape[static_cast<size_t>(p.cut.dim)] / p.cut.unit;
    const bool is_copied = copies && p.cut.may_copy && units > 0 && pieces % units == 0;
    if (units % pieces != 0 && !is_copied) return false;
  }
  return true;
}

std::string list_admissible(const std::vector<int64_t>& values) {
  std::string text;
  for (int64_t v : values) text += fmt::format("{}{}", text.empty() ? "" : ", ", v);
  return text;
}

// The largest power of two up to eight that `fits` takes.
template <typename Fits>
int64_t largest_power(const Fits& fits) {
  int64_t best = 1;
  for (int64_t p = 2; p <= kMostLeaves; p *= 2) {
    if (fits(p)) best = p;
  }
  return best;
}

bool is_power_of_two(int64_t v) { return v > 0 && (v & (v - 1)) == 0; }

void check_tp(const Model& model, int64_t tp) {
  if (can_cut(model, tp, true)) return;
  std::vector<int64_t> good;
  for (int64_t t = 1; t <= 64; ++t) {
    if (can_cut(model, t, true)) good.push_back(t);
  }
  throw UserError(fmt::format("parallel.tp={} does not divide the model's attention heads and "
                              "feed-forward width",
                              tp),
                  fmt::format("admissible values of parallel.tp: {}", list_admissible(good)));
}

// What a user may set: also more leaves than there are key/value heads.
std::vector<int64_t> admissible_exact_tp(const Model& model) {
  std::vector<int64_t> good;
  for (int64_t s = 1; s <= kMostLeaves; s *= 2) {
    if (can_cut(model, s, true)) good.push_back(s);
  }
  return good;
}

int64_t resolve_exact_tp(const RunConfig& c, const Model& model) {
  const int64_t wanted = c.parallel.exact_tp;
  if (wanted == 0) return largest_power([&](int64_t s) { return can_cut(model, s, false); });
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
  constexpr int64_t kMostGroups = 256;  // so many levels as products have room for addends
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
                      "; exact mode cuts into at most {} leaves, whatever the model: take "
                      "more of parallel.dp, or parallel.mode=fast",
                      kMostLeaves);
  }
  for (int64_t s : admissible_exact_tp(model)) {
    if (s % l.tp != 0) continue;
    return text + fmt::format("; or set parallel.exact_tp={}, in every layout that is compared", s);
  }
  return text;
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
  if (l->exact_dp % l->dp != 0) {
    throw UserError(
        fmt::format("in exact mode parallel.dp={} must divide exact_dp={}", l->dp, l->exact_dp),
        fmt::format("admissible values of parallel.dp: {}", list_divisors(l->exact_dp)));
  }
}

}  // namespace

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
  check_tp(model, l.tp);
  for (const ParameterSpec& p : model.parameters()) {
    if (!p.cut.may_copy) continue;
    const int64_t units = p.shape[static_cast<size_t>(p.cut.dim)] / p.cut.unit;
    l.copies = std::max(l.copies, static_cast<int>(l.tp / units));
  }
  if (c.parallel.mode == "exact") resolve_exact(c, model, &l);
  return l;
}

Layout check_layout(const RunConfig& c) {
  const HfFolder folder(resolve_model_path(c.model.path));
  const auto model = make_model(folder.config(), {c.model.num_layers.value_or(0), c.model.dropout});
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
