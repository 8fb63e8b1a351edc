// parallel/prefetch_parameters.h: gathers zero3's parameters shortly before use, and frees them
// after.
#pragma once

#include "parallel/buckets.h"

namespace weft {

// Every range of the pass list that reads a bucket reads a gathered copy of it. The gather is
// issued one range earlier, so that it overlaps with the computation before it; two copies exist at
// a time.
void prefetch_parameters(Graph* graph, const std::vector<Bucket>& buckets);

}  // namespace weft
