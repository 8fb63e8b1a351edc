// track/memory.h: this process's memory, as counted by the kernel.
#pragma once

#include <cstdint>

namespace weft {

int64_t peak_resident_bytes();       // VmHWM: mapped files included
int64_t anonymous_resident_bytes();  // RssAnon: what we allocated, now

}  // namespace weft
