// base/exact_sum.cpp: addends are split at 32-bit boundaries; rounding starts from the top limb.
#include "base/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace weft {
namespace {

__extension__ typedef unsigned __int128 Wide;

constexpr int kBias = 1088;  // the lowest limb's unit is 2^-1088, below the smallest double
constexpr int kTop = ExactSum::kLimbs - 1;
constexpr int64_t kMask = 0xffffffff;

}  // namespace

void ExactSum::add(double v) {
  const uint64_t bits = std::bit_cast<uint64_t>(v);
  const int exponent = static_cast<int>((bits >> 52) & 0x7ff);
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (exponent == 0x7ff) {
    ++limbs_[kTop];
    return;
  }
  if (exponent != 0) mantissa |= uint64_t{1} << 52;
  if (mantissa == 0) return;
  // v = mantissa * 2^(max(exponent, 1) - 1075)
  const int position = (exponent == 0 ? 1 : exponent) - 1075 + kBias;
  const size_t limb = static_cast<size_t>(position / 32);
  const int shift = position % 32;
  const auto wide = static_cast<Wide>(mantissa) << shift;
  const int64_t sign = (bits >> 63) != 0 ? -1 : 1;
  limbs_[limb] += sign * static_cast<int64_t>(static_cast<uint64_t>(wide) & kMask);
  limbs_[limb + 1] += sign * static_cast<int64_t>(static_cast<uint64_t>(wide >> 32) & kMask);
  limbs_[limb + 2] += sign * static_cast<int64_t>(static_cast<uint64_t>(wide >> 64) & kMask);
}

void ExactSum::normalize() {
  for (size_t i = 0; i + 1 < kTop; ++i) {
    const int64_t carry = limbs_[i] >> 32;  // towards minus infinity
    limbs_[i] -= carry << 32;
    limbs_[i + 1] += carry;
  }
}

double ExactSum::value() const {
  if (limbs_[kTop] != 0) return std::numeric_limits<double>::quiet_NaN();
  ExactSum sum = *this;
  sum.normalize();
  const bool is_negative = sum.limbs_[kTop - 1] < 0;
  if (is_negative) {
    for (int i = 0; i < kTop; ++i) sum.limbs_[static_cast<size_t>(i)] *= -1;
    sum.normalize();
  }
  int top = kTop - 1;
  while (top > 0 && sum.limbs_[static_cast<size_t>(top)] == 0) --top;
  // The 64 highest bits, the rest as one sticky bit: then one rounding to 53.
  const auto limb = [&](int i) {
    return i < 0 ? uint64_t{0} : static_cast<uint64_t>(sum.limbs_[static_cast<size_t>(i)]);
  };
  const int width = static_cast<int>(std::bit_width(limb(top)));
  const auto high =
      static_cast<Wide>(limb(top)) << 64 | static_cast<Wide>(limb(top - 1)) << 32 | limb(top - 2);
  uint64_t mantissa = static_cast<uint64_t>(high >> width);
  bool sticky = (high & ((static_cast<Wide>(1) << width) - 1)) != 0;
  for (int i = top - 3; i >= 0; --i) sticky = sticky || limb(i) != 0;
  mantissa |= sticky ? 1 : 0;
  const double magnitude =
      std::ldexp(static_cast<double>(mantissa), (top - 2) * 32 - kBias + width);
  return is_negative ? -magnitude : magnitude;
}

}  // namespace weft
