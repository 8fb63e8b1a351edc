// train/length_plans.cpp: looked up by lengths; created for new ones.
#include "train/length_plans.h"

#include <utility>

#include "base/error.h"

namespace weft {
namespace {

// The executor keeps a pointer to the caller's function, only during the pass.
class AskedStop {
 public:
  AskedStop(Executor* executor, const LengthPlans::IsStopped& is_stopped) : executor_(executor) {
    executor_->ask_stop(is_stopped ? &is_stopped : nullptr);
  }
  ~AskedStop() { executor_->ask_stop(nullptr); }
  AskedStop(const AskedStop&) = delete;
  AskedStop& operator=(const AskedStop&) = delete;

 private:
  Executor* executor_;
};

}  // namespace

LengthPlans::LengthPlans(const Plan& longest, const Lengths& lengths, Trace trace,
                         const Place& place, const Passes& passes)
    : plan_(longest), trace_(std::move(trace)), place_(place), passes_(passes) {
  longest_ = (by_lengths_[lengths] = make(longest)).executor.get();
}

LengthPlans::Made LengthPlans::make(const Plan& plan) const {
  Made made;
  made.executor =
      std::make_unique<Executor>(plan, place_.layout, place_.arena, place_.pool, place_.mesh);
  if (may_stop_) made.executor->allow_stop();
  made.runner = std::make_unique<BatchRunner>(made.executor.get(), passes_);
  return made;
}

LengthPlans::Made& LengthPlans::of_lengths(const Lengths& lengths) {
  const auto found = by_lengths_.find(lengths);
  if (found != by_lengths_.end()) return found->second;
  auto plan = std::make_unique<Plan>(shorten_plan(plan_, trace_(lengths)));
  Made made = make(*plan);
  made.plan = std::move(plan);
  return by_lengths_[lengths] = std::move(made);
}

void LengthPlans::allow_stop() {
  may_stop_ = true;
  for (auto& [lengths, made] : by_lengths_) made.executor->allow_stop();
}

void LengthPlans::drain() {
  for (auto& [lengths, made] : by_lengths_) made.executor->drain();
}

// Every plan adds to the same sum.
bool LengthPlans::run(const Batch& batch, const IsStopped& is_stopped) {
  for (int64_t pass = 0; pass < passes_.count; ++pass) {
    if (is_stopped && is_stopped()) return false;
    Made& made = of_lengths(pass_length(batch, pass));
    const AskedStop asked(made.executor.get(), is_stopped);
    made.runner->run(batch, pass);
  }
  return true;
}

}  // namespace weft
