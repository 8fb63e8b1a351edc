// generate/run.cpp: the loop over steps.
#include "generate/run.h"

#include <algorithm>

#include "base/log.h"
#include "base/stop.h"

namespace weft {

Generator::Run::Run(Generator& generator, const std::vector<std::vector<int32_t>>& prompts,
                    const SampleOptions& options, const GenerateEvents& events)
    : g_(generator),
      prompts_(prompts),
      options_(options),
      events_(events),
      results_(prompts.size()) {}

std::vector<std::vector<int32_t>> Generator::Run::results() {
  if (options_.max_new_tokens == 0) next_ = prompts_.size();
  while (!rows_.empty() || next_ < prompts_.size()) {
    if (!g_.ranks_.world) throw_if_stopped();
    admit();
    step();
  }
  if (num_full_ > 0) {
    log_warning("{} of {} continuations stopped because they reached the limit of {} positions",
                num_full_, prompts_.size(), g_.max_positions());
  }
  return std::move(results_);
}

// Waiting prompts get the first slots; the rows there move to the end.
void Generator::Run::admit() {
  const auto slots = static_cast<size_t>(g_.options_.max_batch);
  const size_t old = rows_.size(), free = slots - old;
  if (old > 0 && free * 4 < slots) return;
  const size_t coming = std::min(free, prompts_.size() - next_);
  rows_.resize(old + coming);
  for (size_t slot = 0; slot < std::min(old, coming); ++slot) {
    const size_t to = std::max(old, coming) + slot;
    copy_cache(slot, to);
    rows_[to] = std::move(rows_[slot]);
  }
  if (coming > 0) enter(coming);
}

// The next prompts, into the first slots.
void Generator::Run::enter(size_t coming) {
  const bool has_sources = !g_.encoders_.empty();
  std::vector<const std::vector<int32_t>*> sources;
  for (size_t slot = 0; slot < coming; ++slot, ++next_) {
    Row& row = rows_[slot] = {};
    row.prompt = next_;
    row.tokens = has_sources ? std::vector<int32_t>{g_.model_.start_id()} : prompts_[next_];
    row.given = row.tokens.size();
    sources.push_back(&prompts_[next_]);
  }
  if (has_sources) g_.encode(sources);
}

int64_t Generator::Run::source_of(const Row& row) const {
  return g_.encoders_.empty() ? 0 : static_cast<int64_t>(prompts_[row.prompt].size());
}

void Generator::Run::copy_cache(size_t from, size_t to) {
  const Row& row = rows_[from];
  g_.cache_->copy_row(from, to, static_cast<int64_t>(row.fed), source_of(row));
}

// Over the rows up to the last that has more than one unseen token, or over all.
void Generator::Run::step() {
  size_t rows = rows_.size(), longest = 1;
  for (size_t b = 0; b < rows_.size(); ++b) {
    if (rows_[b].unseen() <= 1) continue;
    rows = b + 1;
    longest = std::max(longest, rows_[b].unseen());
  }
  GenerateStep& step = g_.step_for(rows, longest);
  std::vector<Feed> feeds;
  for (size_t b = 0; b < rows; ++b) {
    Row& row = rows_[b];
    const size_t n = std::min(row.unseen(), static_cast<size_t>(step.positions()));
    feeds.push_back(
        {{row.tokens.data() + row.fed, n}, static_cast<int64_t>(row.fed), source_of(row)});
    row.fed += n;
  }
  step.run(feeds);
  sample(step, rows);
  for (size_t b = rows; b-- > 0;) {
    if (rows_[b].unseen() > 0 && has_ended(rows_[b])) end_row(b);
  }
}

constexpr int32_t kNone = -1;  // no token

// A token for each row that has consumed all of its tokens, or kNone.
std::vector<int32_t> Generator::Run::draw(const GenerateStep& step, size_t rows) {
  std::vector<int32_t> drawn(rows, kNone);
  g_.pool_->run(static_cast<int64_t>(rows), [&](int64_t task, int) {
    const auto b = static_cast<size_t>(task);
    const Row& row = rows_[b];
    if (row.unseen() > 0) return;
    drawn[b] = sample_token(step.logits(b), options_, row.prompt, row.tokens.size());
  });
  return drawn;
}

// Rank 0 sends the others the tokens, and whether a signal ends the work: after the same step on
// all ranks.
void Generator::Run::sample(const GenerateStep& step, size_t rows) {
  Comm* world = g_.ranks_.world;
  const bool draws = !world || world->rank() == 0;
  std::vector<int32_t> drawn = draws ? draw(step, rows) : std::vector<int32_t>(rows, kNone);
  if (world) {
    drawn.push_back(stop_signal());
    world->broadcast(drawn.data(), static_cast<int64_t>(drawn.size() * sizeof(int32_t)), 0);
    if (drawn.back() != 0) throw StopError(drawn.back());
  }
  for (size_t b = 0; b < rows; ++b) {
    if (drawn[b] == kNone) continue;
    rows_[b].tokens.push_back(drawn[b]);
    if (events_.on_token) events_.on_token(rows_[b].prompt, drawn[b]);
    rows_[b].is_ended = events_.ends && events_.ends(rows_[b].prompt, drawn[b]);
  }
}

bool Generator::Run::has_ended(const Row& row) {
  const auto& stops = options_.stop_ids;
  const size_t made = row.tokens.size() - row.given;
  if (made == 0) return false;
  if (row.is_ended) return true;
  if (std::find(stops.begin(), stops.end(), row.tokens.back()) != stops.end()) return true;
  if (made >= static_cast<size_t>(options_.max_new_tokens)) return true;
  // The last token needs no position: it is not fed.
  if (row.tokens.size() <= static_cast<size_t>(g_.max_positions())) return false;
  ++num_full_;
  return true;
}

void Generator::Run::end_row(size_t slot) {
  Row& row = rows_[slot];
  std::vector<int32_t>& ids = results_[row.prompt];
  ids.assign(row.tokens.begin() + static_cast<std::ptrdiff_t>(row.given), row.tokens.end());
  if (events_.on_end) events_.on_end(row.prompt, ids);
  copy_cache(rows_.size() - 1, slot);
  if (slot + 1 != rows_.size()) std::swap(row, rows_.back());
  rows_.pop_back();
}

}  // namespace weft
