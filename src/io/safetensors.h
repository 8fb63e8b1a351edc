// io/safetensors.h: the safetensors format, read with distrust and written in order.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace weft {

struct TensorInfo {
  std::string name;
  Dtype dtype;
  Shape shape;
  size_t begin, end;  // bytes from the start of the data part
};

// A mapped file. The header is checked whole (bounds, overlap, holes, sizes against dtype and
// shape) before anything is returned; UserError names the file, the tensor and what is wrong.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in order of their offsets
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorInfo* find(const std::string& name) const;
  const std::byte* data(const TensorInfo& info) const { return map_.data() + data_start_ + info.begin; }
  size_t data_start() const { return data_start_; }

 private:
  std::filesystem::path path_;
  MappedFile map_;
  size_t data_start_ = 0;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t> index_;
  std::map<std::string, std::string> metadata_;
};

struct TensorToWrite {
  std::string name;
  Dtype dtype;
  Shape shape;
  const void* data;
};

// Writes and syncs; the data part starts 64-byte aligned. RunError where the disk is full.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace weft
