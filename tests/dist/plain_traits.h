// tests/dist/plain_traits.h: what others know of the files of a family that only a test has.
#pragma once

#include "model/family.h"

namespace weft::testing {

inline const FamilyTraits& plain_traits() {
  static const FamilyTraits kTraits;
  return kTraits;
}

}  // namespace weft::testing
