// io/safetensors.h: the safetensors format, validated on reading and written in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace weft {

struct TensorInfo {
  std::string name;
  Dtype dtype;
  Shape shape;
  size_t begin, end;  // bytes from the start of the data section
};

// The bytes of a tensor; none where a dimension is negative or the product overflows.
std::optional<size_t> checked_bytes(const Shape& shape, Dtype dtype);

struct SafetensorsHeader {
  size_t data_start = 0;            // bytes from the start of the file
  std::vector<TensorInfo> tensors;  // in order of their offsets
  std::map<std::string, std::string> metadata;
};
// `file` is the whole file, `what` its name in messages. Checks all that the class below promises.
SafetensorsHeader parse_safetensors(std::string_view file, std::string_view what);

// A mapped file. The header is checked whole (bounds, overlap, gaps, sizes against dtype and shape)
// before anything is returned; UserError names the file, the tensor and what is wrong.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }  // by offset
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const TensorInfo* find(const std::string& name) const;
  const std::byte* data(const TensorInfo& info) const {
    return map_.data() + header_.data_start + info.begin;
  }
  size_t data_start() const { return header_.data_start; }
  void drop_pages() const { map_.drop_pages(); }

 private:
  std::filesystem::path path_;
  MappedFile map_;
  SafetensorsHeader header_;
  std::map<std::string, size_t> index_;
};

// Writes a file piece by piece, so that at most one tensor needs to be in memory. The header is
// written first; then the bytes of tensors(), in that order, in pieces of any size; then finish().
// Larger element types come first, so that every tensor is aligned to its own type; the data
// section starts 64-byte aligned. RunError where the disk is full.
class SafetensorsWriter {
 public:
  // begin and end of the given tensors are outputs.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                    const std::map<std::string, std::string>& metadata);
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  size_t data_start() const { return data_start_; }
  uint64_t header_hash() const { return header_hash_; }  // of all bytes before data_start()
  void write(const void* bytes, size_t size);
  void finish();  // BugError where bytes are missing; syncs

 private:
  std::vector<TensorInfo> tensors_;
  size_t data_start_ = 0;
  uint64_t header_hash_ = 0;
  size_t written_ = 0;
  FileWriter out_;
};

struct TensorToWrite {
  std::string name;
  Dtype dtype;
  Shape shape;
  const void* data;
};

// Writes and syncs; the data section starts 64-byte aligned. RunError where the disk is full.
void write_safetensors(const std::filesystem::path& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace weft
