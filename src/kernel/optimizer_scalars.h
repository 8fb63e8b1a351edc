// kernel/optimizer_scalars.h: the numbers of one step that an optimizer's update reads.
#pragma once

#include <cstring>
#include <type_traits>

namespace weft {

inline constexpr int kMaxOptimizerScalars = 8;

// The update's own struct of doubles (AdamwScalars): its optimizer writes it, its binding and its
// kernels read it, and the code in between knows only its size.
struct OptimizerScalars {
  double values[kMaxOptimizerScalars] = {};

  template <typename T>
  static OptimizerScalars from(const T& own) {
    static_assert(sizeof(T) <= sizeof(values) && std::is_trivially_copyable_v<T>);
    OptimizerScalars made;
    std::memcpy(made.values, &own, sizeof own);
    return made;
  }
  template <typename T>
  T as() const {
    static_assert(sizeof(T) <= sizeof(values) && std::is_trivially_copyable_v<T>);
    T own;
    std::memcpy(&own, values, sizeof own);
    return own;
  }
};

}  // namespace weft
