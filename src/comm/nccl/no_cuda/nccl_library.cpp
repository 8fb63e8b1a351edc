// comm/nccl/no_cuda/nccl_library.cpp: a program built without CUDA, or without NCCL's header.
#include "comm/nccl/nccl_library.h"

namespace weft {

NcclLibrary* find_nccl(std::string* why_none) {
  *why_none = "this weft was built without it";
  return nullptr;
}

}  // namespace weft
