// parallel/prefetch_parameters.h: zero3's parameters made whole shortly before use, and given up
// after.
#pragma once

#include "parallel/buckets.h"

namespace weft {

// Every stretch of the pass list that reads a bucket reads a gathered copy of it. Its gather is
// issued one stretch earlier, so that it runs beside the computation before it; two copies exist at
// a time.
void prefetch_parameters(Graph* graph, const std::vector<Bucket>& buckets);

}  // namespace weft
