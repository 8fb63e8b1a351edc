// comm/reduce.h: the only way in which weft adds over ranks.
#pragma once

#include <cstdint>

#include "comm/comm.h"

namespace weft {

// out[i] = the tree of comm.h over in[0..n)[i]. out may be one of the inputs. fp32, bf16, fp64 and
// int64 (which wraps). The maximum of anything and NaN is NaN.
void reduce_tree(const void* const* in, int n, void* out, int64_t count, Dtype dtype, Reduce op);

}  // namespace weft
