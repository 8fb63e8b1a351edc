// kernel/cuda/forward.h: functions of a library's header that forward to the library, where it is.
//
// A program linked with a library does not start on a machine without it. Here the functions are
// found in the library when they are first called; where there is none they return `absent`.
#pragma once

#include <dlfcn.h>

#include "tensor/cuda/library.h"

namespace weft::cuda {

inline void* find_function(const Library& library, const char* name) {
  return library.handle ? ::dlsym(library.handle, name) : nullptr;
}

}  // namespace weft::cuda

#define WEFT_FORWARD(library, absent, Result, name, parameters, arguments)            \
  Result name parameters {                                                            \
    static const auto to =                                                            \
        reinterpret_cast<decltype(&name)>(weft::cuda::find_function(library, #name)); \
    return to ? to arguments : absent;                                                \
  }
