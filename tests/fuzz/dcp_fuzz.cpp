// tests/fuzz/dcp_fuzz.cpp: any bytes are the metadata of torch.distributed.checkpoint or a
// UserError, and no file that they name leads out of the folder.
#include <cstdint>
#include <cstdlib>

#include "base/error.h"
#include "io/dcp_metadata.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    for (const auto& [name, tensor] : weft::parse_dcp_metadata(bytes, "fuzz")) {
      if (tensor.path.empty()) std::abort();
      for (const weft::DcpChunk& c : tensor.chunks) {
        if (c.begin > c.end || c.file.find('/') != std::string::npos || c.file == "..")
          std::abort();
      }
    }
  } catch (const weft::UserError&) {
  }
  return 0;
}
