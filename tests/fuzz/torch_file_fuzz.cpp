// tests/fuzz/torch_file_fuzz.cpp: any bytes are a file of torch.save or a UserError, and every
// tensor that is returned can be read whole, within the bytes.
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "io/torch_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const weft::TorchArchive archive({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const auto& [name, t] : weft::named_tensors(archive, archive.root())) {
      if (!t.fault.empty()) continue;
      const int64_t n = weft::num_elements(t.shape);
      std::vector<std::byte> out(static_cast<size_t>(n * weft::dtype_bytes(t.dtype)));
      archive.read(t, 0, n, out.data());
      if (n > 2) archive.read(t, 1, n - 1, out.data());
    }
  } catch (const weft::UserError&) {
  }
  return 0;
}
