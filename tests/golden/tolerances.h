// tests/golden/tolerances.h: how far from PyTorch we may be, and why.
#pragma once

namespace weft {

// fp32 sums of up to a few thousand terms in another order; torch is 3e-6 from its own float64.
inline constexpr double kGradientError = 2e-5;
inline constexpr double kLossError = 5e-6;
inline constexpr double kLogitError = 1e-4;  // absolute, logits of size one to ten
// Ten AdamW steps at 1e-4 and twenty at 1e-3 let rounding grow; the longer run gets ten times
// torch's own spread between eager and sdpa attention where that is larger.
inline constexpr double kStepLoss10 = 5e-6, kStepNorm10 = 1e-4;
inline constexpr double kStepLoss20 = 1e-5, kStepNorm20 = 5e-4, kStepSpreads20 = 10;
// bf16 rounds in other places (torch rounds the rope table and every attention product).
inline constexpr double kBf16Loss = 2e-3;

}  // namespace weft
