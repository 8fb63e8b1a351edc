// model/head_chunks.h: how many rows of logits exist at one time.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace weft {

// Of a head's loss over `tokens`, computed in chunks.
int64_t head_chunk_rows(int64_t tokens, int64_t vocab, Dtype compute);

}  // namespace weft
