// tensor/loss_scale.h: fp16's loss scale, as stored in device memory.
//
// fp16 gradients underflow below 2^-24 and overflow above 65504, so the loss is multiplied by the
// largest scale they allow. It is found by trial: a step with non-finite gradients is skipped and
// the scale halved; after many good steps it is doubled. The host may be a pass behind the device,
// so the scale lives where the passes read it.
#pragma once

#include <cstdint>

namespace weft {

struct LossScale {
  float factor = 0;        // of the gradient of the sum of losses: scale / P (docs/contract.md)
  float scale = 0x1p16f;   // a power of two, and so is P: nothing is rounded
  int32_t good_steps = 0;  // since it last changed
  int32_t skipped = 0;     // steps of the run without an update
};

inline constexpr int64_t kLossScaleWords = sizeof(LossScale) / sizeof(int32_t);  // as a tensor

// As torch's GradScaler; the bounds keep the factor a normal number.
inline constexpr int32_t kGoodSteps = 2000;
inline constexpr float kLeastLossScale = 1.0f, kMostLossScale = 0x1p64f;

// After a step; overflowed: its gradients were not finite.
constexpr LossScale next_loss_scale(LossScale s, bool overflowed) {
  float change = 1.0f;
  if (overflowed) {
    ++s.skipped;
    s.good_steps = 0;
    if (s.scale > kLeastLossScale) change = 0.5f;
  } else if (++s.good_steps == kGoodSteps) {
    s.good_steps = 0;
    if (s.scale < kMostLossScale) change = 2.0f;
  }
  s.scale *= change;
  s.factor *= change;
  return s;
}

}  // namespace weft
