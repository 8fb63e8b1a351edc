// io/torch_writer.h: files as torch.save writes them, a piece of a tensor at a time.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "io/pickle_writer.h"
#include "io/zip_writer.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace weft {

// Appends a contiguous tensor that is all of the archive's storage of that number.
void pickle_tensor(PickleWriter& out, size_t storage, Dtype dtype, const Shape& shape);

// One archive: the pickle, then the bytes of its storages, in order, in pieces of any size.
class TorchWriter {
 public:
  // `pickle` is finish() of a PickleWriter; the storages have these many bytes.
  TorchWriter(FileWriter* out, std::string_view pickle, std::vector<uint64_t> storages);
  void write(const void* bytes, size_t size);
  uint64_t finish();  // BugError where bytes are missing; returns the bytes of the archive

 private:
  void begin_next();
  ZipWriter zip_;
  std::vector<uint64_t> storages_;
  size_t next_ = 0;       // storage to begin
  uint64_t missing_ = 0;  // bytes of the one before it
};

}  // namespace weft
