// graph/ops/embedding.h: rows of a table by id.
#pragma once

#include "graph/builder.h"
#include "graph/op_rule.h"

namespace weft {

struct EmbeddingAttr {
  int32_t padding_id = -1;  // its row gets no gradient
  int parts = 1;            // pieces of the table
};
extern const OpRule kEmbeddingOp, kEmbeddingGradOp;

namespace ops {
Ref embedding(Builder& g, Ref ids, Ref table, int32_t padding_id);  // (B, T), (V, C) -> (B, T, C)
}
}  // namespace weft
