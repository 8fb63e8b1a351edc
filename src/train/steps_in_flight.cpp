// train/steps_in_flight.cpp: copies each step's results to a separate slot as the last of its work.
#include "train/steps_in_flight.h"

#include "base/error.h"
#include "tensor/names.h"

namespace weft {

StepsInFlight::StepsInFlight(const Executor& executor)
    : device_(executor.device()),
      loss_(executor.find(names::kLossSum)),
      grad_norm_(executor.find(names::kGradNorm)),
      loss_scale_(executor.find(names::kLossScale)),
      shared_(device_->allocate_pinned(int64_t{kMost * sizeof(Results)})) {
  for (std::unique_ptr<Event>& done : done_) done = device_->make_event();
}

StepsInFlight::~StepsInFlight() { device_->free_pinned(shared_, int64_t{kMost * sizeof(Results)}); }

StepsInFlight::Results* StepsInFlight::results(size_t step) const {
  return reinterpret_cast<Results*>(shared_) + step % kMost;
}

void StepsInFlight::add(const Started& step) {
  if (added_ - taken_ >= kMost) throw BugError("too many steps in flight");  // ensure() allocates
  Results* to = results(added_);
  device_->copy(&to->loss, loss_, sizeof to->loss);
  device_->copy(&to->grad_norm, grad_norm_, sizeof to->grad_norm);
  if (loss_scale_) device_->copy(&to->loss_scale, loss_scale_, sizeof to->loss_scale);
  done_[added_ % kMost]->set();
  started_[added_++ % kMost] = step;
}

StepsInFlight::Ended StepsInFlight::take() {
  if (taken_ == added_) throw BugError("no step is in flight");
  done_[taken_ % kMost]->wait();
  const Results& r = *results(taken_);
  return {started_[taken_++ % kMost], r.loss, r.grad_norm, r.loss_scale};
}

}  // namespace weft
