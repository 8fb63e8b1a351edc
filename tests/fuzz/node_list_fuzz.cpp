// tests/fuzz/node_list_fuzz.cpp: any bytes as a list of Slurm nodes: plain names, or an error.
#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "launch/slurm_node_list.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto names = weft::expand_node_list(text);
    weft::ensure(!names.empty() && names.size() <= 65536, "a bounded number of nodes");
    for (const std::string& name : names) {
      weft::ensure(name.size() <= 1024 && name.find_first_of("[],") == std::string::npos,
                   "a name without brackets");
    }
    weft::ensure(weft::expand_node_list(names.front()).size() == 1, "a name is a list of itself");
  } catch (const weft::UserError&) {
  }
  return 0;
}
