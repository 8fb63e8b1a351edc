// io/safetensors.h: the safetensors format, validated on reading and written in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "io/tensor_file.h"

namespace weft {

struct SafetensorsHeader {
  size_t data_start = 0;            // bytes from the start of the file
  std::vector<TensorInfo> tensors;  // in order of their offsets
  std::map<std::string, std::string> metadata;
};
// `file` is the whole file, `what` its name in messages. Checks all that the class below promises.
SafetensorsHeader parse_safetensors(std::string_view file, std::string_view what);

// A mapped file. The header is checked whole (bounds, overlap, gaps, sizes against dtype and shape)
// before anything is returned; UserError names the file, the tensor and what is wrong.
class SafetensorsFile final : public TensorFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::byte* data(const TensorInfo& info) const override {
    return map_.data() + data_start_ + info.begin;
  }
  void read(const TensorInfo& info, int64_t begin, int64_t end, void* out) const override;
  size_t data_start() const { return data_start_; }
  void drop_pages() const override { map_.drop_pages(); }

 private:
  MappedFile map_;
  size_t data_start_ = 0;
  std::map<std::string, std::string> metadata_;
};

// Where the tensors of a new file lie. Larger element types come first, so that every tensor is
// aligned to its own type; the data section starts 64-byte aligned.
struct SafetensorsPlan {
  std::string header;               // every byte before the data
  std::vector<TensorInfo> tensors;  // in the order of the file; begin and end are set
  size_t file_bytes() const { return header.size() + (tensors.empty() ? 0 : tensors.back().end); }
};
SafetensorsPlan plan_safetensors(std::vector<TensorInfo> tensors,
                                 const std::map<std::string, std::string>& metadata);

// Writes a file piece by piece, so that at most one tensor needs to be in memory. The header is
// written first; then the bytes of tensors(), in that order, in pieces of any size; then finish().
// RunError where the disk is full.
class SafetensorsWriter {
 public:
  // begin and end of the given tensors are outputs.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                    const std::map<std::string, std::string>& metadata);
  const std::vector<TensorInfo>& tensors() const { return plan_.tensors; }
  void write(const void* bytes, size_t size);
  void finish();  // BugError where bytes are missing; syncs

 private:
  SafetensorsPlan plan_;
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
