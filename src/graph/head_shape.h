// graph/head_shape.h: how the columns of q, k and v map to attention heads.
#pragma once

#include <cstdint>

#include "graph/localizer.h"

namespace weft {

struct HeadShape {
  int64_t heads, kv_heads, head_dim;
  int64_t columns() const { return (heads + 2 * kv_heads) * head_dim; }  // of q, k and v
};

// The heads of this rank where the columns of qkv are cut.
HeadShape local_heads(Localizer* localizer, Ref qkv, const HeadShape& logical);

}  // namespace weft
