// tensor/lengths.h: the positions that a row has on each side of a model.
#pragma once

#include <compare>
#include <cstdint>

namespace weft {

struct Lengths {
  int64_t target = 0;  // T: of a decoder-only model, the row's
  int64_t source = 0;  // S: the encoder's; 0: there is none
  auto operator<=>(const Lengths&) const = default;
};

}  // namespace weft
