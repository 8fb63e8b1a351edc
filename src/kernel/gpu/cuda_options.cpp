// kernel/gpu/cuda_options.cpp: the part that works without a GPU, too.
#include "kernel/gpu/cuda_options.h"

#include "base/environment.h"

namespace weft {

bool wants_cudnn() { return environment_choice("WEFT_CUDNN", {"on", "off"}) != "off"; }

}  // namespace weft
