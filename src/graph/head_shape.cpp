// graph/head_shape.cpp: heads by rank.
#include "graph/head_shape.h"

namespace weft {

HeadShape local_heads(Localizer* localizer, Ref qkv, const HeadShape& logical) {
  if (!localizer->placement(qkv).is_cut(2)) return logical;
  HeadShape h = logical;
  h.heads = logical.heads / localizer->mesh().tp;
  // Columns of qkv are heads + 2 kv_heads; the rest after q is k and v.
  h.kv_heads = (localizer->local_shape(qkv).back() / h.head_dim - h.heads) / 2;
  return h;
}

}  // namespace weft
