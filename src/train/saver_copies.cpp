// train/saver_copies.cpp: copies of the state: taken beside the passes, and sent to another node.
#include <utility>

#include "base/elapsed.h"
#include "train/saver.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

// With slots every checkpoint's step is in them before it is committed, so that ranks that continue
// from memory never fall behind a checkpoint.
void Saver::secure(const TrainState& state) {
  take_snapshot(state);
  wait_for_copy();
  wait_for_partner();
}

void Saver::reserve_snapshot() {
  const RunConfig& c = file_.config();
  if (std::exchange(has_reserved_, true)) return;
  const int64_t every = c.checkpoint.every, step = std::max<int64_t>(saved_step_, 0);
  const bool is_unsaved =
      every > 0 && c.train.steps > 0 && (step / every + 1) * every >= c.train.steps;
  if (!has_slots() && (!c.checkpoint.async || is_unsaved)) return;
  copies_.post([this, has_saves = c.checkpoint.async] {
    try {
      snapshots_.reserve(has_saves);
    } catch (const std::exception&) {  // copy() tries again, and its save reports it
    }
  });
}

void Saver::wait_for_copy() {
  reserve_snapshot();
  const auto begun = Clock::now();
  copies_.wait_for(copied_);
  wait_s_ = seconds_since(begun);
  blocked_s_ = blocked_s_ + wait_s_;
}

void Saver::take_snapshot(const TrainState& state, bool has_met) {
  if (!has_slots() || snapshots_.find(state.step)) return;
  copy(state.step, to_json(state), has_met);
}

void Saver::copy(int64_t step, const Json& state, bool has_met) {
  std::string text;
  if (has_slots()) {
    if (!has_met) {
      wait_for_copy();
      wait_for_partner();
      ranks_.world().barrier();
    }
    text = Json(Json::Object{{"state", state}, {"about", hooks_.about ? hooks_.about() : Json()}})
               .dump();
  }
  has_copied_ = true;
  copied_ = copies_.post([this, slot = snapshots_.choose(step), step, text = std::move(text)] {
    const auto begun = Clock::now();
    copy_errors_[slot] = nullptr;
    try {
      snapshots_.copy(slot, step, text);
    } catch (...) {  // reported by the save, together with the other ranks
      copy_errors_[slot] = std::current_exception();
    }
    copy_s_ = seconds_since(begun);
  });
  // One that was given up may take a moment to end: nobody waits for a copy behind it.
  const auto is_ending = [&] {
    return given_up_ == sent_ && !partner_lane_.wait_for(sent_, std::chrono::milliseconds(0));
  };
  if (!partner_ || is_ending()) return;
  sent_step_ = step;
  sent_ = partner_lane_.post([this, step, copied = copied_] {
    copies_.wait_for(copied);
    partner_->send(step);
  });
}

// The others wait for this rank meanwhile: it must not be taken for one that hangs.
void Saver::wait_for_partner() {
  if (!partner_) return;
  const std::chrono::milliseconds most(ranks_.world().deadline_ms() / 3);
  if (given_up_ == sent_ || partner_lane_.wait_for(sent_, most)) return;
  partner_->give_up(sent_step_, std::chrono::duration<double>(most).count());
  given_up_ = sent_;
}

}  // namespace weft
