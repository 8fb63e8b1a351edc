// train/rank_agreement.cpp: small exchanges over all ranks.
#include "train/rank_agreement.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "train/numerics.h"

namespace weft {
namespace {

// Broadcasts a rank's text.
std::string share_text(Ranks& ranks, std::string text, int from = 0) {
  auto size = static_cast<int64_t>(text.size());
  ranks.world().broadcast(&size, sizeof size, from);
  text.resize(static_cast<size_t>(size));
  ranks.world().broadcast(text.data(), size, from);
  return text;
}

template <typename T>
std::vector<T> gather(Ranks& ranks, T mine) {
  std::vector<T> all(static_cast<size_t>(ranks.size()));
  ranks.world().all_gather(&mine, all.data(), sizeof mine);
  return all;
}

// The first rank whose hash is not rank 0's; -1: all equal.
int first_other(const std::vector<uint64_t>& hashes) {
  for (size_t r = 1; r < hashes.size(); ++r) {
    if (hashes[r] != hashes[0]) return static_cast<int>(r);
  }
  return -1;
}

// The first line in which two texts differ; both empty: they do not.
std::pair<std::string, std::string> first_line_apart(const std::string& a, const std::string& b) {
  std::istringstream left(a), right(b);
  for (;;) {
    std::string x, y;
    const bool more_left = !!std::getline(left, x), more_right = !!std::getline(right, y);
    if (x != y || (!more_left && !more_right)) return {x, y};
  }
}

// "rank 2", with its node if there are several. Collective; all ranks get the same text.
std::string full_name(Ranks& ranks, const RankHost& mine, int rank) {
  const std::vector<int> firsts = gather(ranks, mine.first_rank);
  const std::string host = share_text(ranks, mine.name, rank);
  const std::set<int> nodes(firsts.begin(), firsts.end());
  if (nodes.size() == 1) return fmt::format("rank {}", rank);
  const auto node = nodes.find(firsts[static_cast<size_t>(rank)]);
  return fmt::format("rank {} on node {} ({})", rank, std::distance(nodes.begin(), node), host);
}

// Texts of rank 0 and of rank `other`. Collective.
std::pair<std::string, std::string> share_both(Ranks& ranks, const std::string& mine, int other) {
  std::string first = share_text(ranks, mine);  // in the same order on all ranks
  return {std::move(first), share_text(ranks, mine, other)};
}

constexpr const char* kModelFile = "model file (name, size, hash of the file or of a sample)";

template <typename T>
uint64_t hash_of(const std::vector<T>& values) {
  return hash_bytes(values.data(), values.size() * sizeof(T));
}

}  // namespace

RunStart agree_on_start(Ranks& ranks, RunStart start) {
  if (ranks.size() == 1) return start;
  start.dir = share_text(ranks, start.dir.string());
  const std::string checkpoint =
      share_text(ranks, start.checkpoint ? start.checkpoint->string() : "");
  start.checkpoint.reset();
  if (!checkpoint.empty()) start.checkpoint = checkpoint;
  const int64_t finished = agree_on_number(ranks, [&] { return start.finished_step.value_or(-1); });
  start.finished_step.reset();
  if (finished >= 0) start.finished_step = finished;
  start.is_of_other_run =
      agree_on_number(ranks, [&] { return int64_t{start.is_of_other_run}; }) != 0;
  return start;
}

int64_t agree_on_number(Ranks& ranks, const std::function<int64_t()>& count) {
  int64_t number = ranks.rank() == 0 ? count() : 0;
  if (ranks.size() > 1) ranks.world().broadcast(&number, sizeof number, 0);
  return number;
}

std::string agree_on_text(Ranks& ranks, const std::function<std::string()>& choose) {
  std::string text = ranks.rank() == 0 ? choose() : "";
  return ranks.size() > 1 ? share_text(ranks, std::move(text)) : text;
}

std::string first_text(Ranks& ranks, const std::string& mine) {
  if (ranks.size() == 1) return mine;
  const std::vector<int64_t> has = gather(ranks, int64_t{!mine.empty()});
  for (int r = 0; r < ranks.size(); ++r) {
    if (has[static_cast<size_t>(r)] != 0) return share_text(ranks, mine, r);
  }
  return "";
}

std::vector<int64_t> gather_numbers(Ranks& ranks, int64_t mine) { return gather(ranks, mine); }

int agree_on_signal(Ranks& ranks, int received) {
  int64_t signal = received;
  if (ranks.size() > 1) ranks.world().all_reduce(&signal, 1, Dtype::kI64, Reduce::kMax);
  return static_cast<int>(signal);
}

DataCounters sum_counters(Ranks& ranks, DataCounters mine) {
  std::array<int64_t, std::size(kDataCounts)> numbers;
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = mine.*kDataCounts[i];
  ranks.sum_over_data(numbers.data(), numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) mine.*kDataCounts[i] = numbers[i];
  return mine;
}

bool agree_on_success(Comm& group, bool ok) {
  int64_t failures = ok ? 0 : 1;
  group.all_reduce(&failures, 1, Dtype::kI64);
  return failures == 0;
}

void agree_on_inputs(Ranks& ranks, const RankInputs& mine) {
  if (ranks.size() == 1) return;
  const std::string numerics = mine.numerics.dump();
  const uint64_t hash =
      hash_text(mine.model, hash_text(mine.data, hash_text(mine.run, hash_text(numerics))));
  const int other = first_other(gather(ranks, hash));
  if (other < 0) return;
  // All ranks know that two differ: they exchange their values, so that any can name both.
  const std::string name = fmt::format("on rank {}", other);
  const auto [first, second] = share_both(ranks, numerics, other);
  std::vector<std::string> found =
      numerics_differences(parse_json(first, "the numerics of rank 0"), "on rank 0",
                           parse_json(second, "the numerics of a rank"), name);
  const auto add_line = [&](std::string_view what, const std::string& text) {
    const auto [text_0, text_other] = share_both(ranks, text, other);
    if (const auto [a, b] = first_line_apart(text_0, text_other); a != b)
      found.push_back(fmt::format("{}: \"{}\" on rank 0, \"{}\" {}", what, a, b, name));
  };
  add_line("run file", mine.run);
  add_line(kModelFile, mine.model);
  add_line("data file (name, size, hash of a sample)", mine.data);
  const std::string rank_0 = full_name(ranks, mine.host, 0);
  throw UserError(
      fmt::format("{} does not match {}: {}", full_name(ranks, mine.host, other), rank_0,
                  fmt::join(found, "; ")),
      "all ranks need the same program, run file, model files, data files and kind of processor; "
      "WEFT_CPU_LEVEL sets the kernels");
}

void agree_on_files(Ranks& ranks, const RankHost& host, const std::string& what,
                    const std::string& mine) {
  if (ranks.size() == 1) return;
  std::vector<uint64_t> hashes = gather(ranks, mine.empty() ? 0 : hash_text(mine));
  for (uint64_t& hash : hashes) hash = hash == 0 ? hashes[0] : hash;
  const int other = first_other(hashes);
  if (other < 0) return;
  const auto [text_0, text_other] = share_both(ranks, mine, other);
  const auto [a, b] = first_line_apart(text_0, text_other);
  const std::string rank_0 = full_name(ranks, host, 0);
  throw UserError(fmt::format("{} reads a different file than {}: {}: \"{}\" on rank 0, \"{}\" on "
                              "rank {}",
                              full_name(ranks, host, other), rank_0, what, a, b, other),
                  "every node needs the same files under that path: copy the folder from one node "
                  "to the others, or share it");
}

bool has_several_hosts(Ranks& ranks, const RankHost& host) {
  if (ranks.size() == 1) return false;
  const std::vector<int> firsts = gather(ranks, host.first_rank);
  return std::any_of(firsts.begin(), firsts.end(), [](int first) { return first != 0; });
}

void compare_batches(Ranks& ranks, const Batch& batch, int64_t step) {
  const StreamState& after = batch.after;
  const std::vector<int64_t> place = {batch.padded.target, batch.padded.source, batch.epoch,
                                      after.epoch,         after.position,      after.part};
  const int other = first_other(gather(ranks, hash_of(place)));
  ensure(other < 0, fmt::format("rank {} is at other rows in step {} than rank 0", other, step));
  uint64_t mine = hash_of(batch.pass_lengths);
  for (const BatchTensor& tensor : batch.tensors)
    mine = mine * 3 ^ hash_text(tensor.name, hash_of(tensor.bytes));
  const std::vector<uint64_t> rows = gather(ranks, mine);
  const Layout& layout = ranks.layout();
  for (int r = 0; r < ranks.size(); ++r) {
    if (layout.dp_rank(r) != ranks.dp_rank()) continue;
    ensure(rows[static_cast<size_t>(r)] == mine,
           fmt::format("rank {} has made another batch of step {} than rank {}", ranks.rank(), step,
                       r));
  }
}

}  // namespace weft
