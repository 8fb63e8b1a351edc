// io/tensor_file.h: a file of named tensors, whatever its format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
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
  size_t begin, end;  // bytes from the start of the data section
};

// The bytes of a tensor; none where a dimension is negative or the product overflows.
std::optional<size_t> checked_bytes(const Shape& shape, Dtype dtype);

// From this many bytes on, a read releases the pages that it has touched.
inline constexpr size_t kLargeRead = size_t{1} << 20;

// Copies elements [begin, end) of `width` bytes of a tensor that starts at byte `start`. The pages
// of a large read are released. RunError where the file was truncated meanwhile.
void read_mapped(const MappedFile& map, size_t start, int64_t width, int64_t begin, int64_t end,
                 void* out);

class TensorFile {
 public:
  explicit TensorFile(std::filesystem::path path) : path_(std::move(path)) {}
  TensorFile(TensorFile&&) = default;
  TensorFile& operator=(TensorFile&&) = default;
  virtual ~TensorFile() = default;

  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find(const std::string& name) const;
  // Tensors that are there but cannot be read, with the reason: an unknown dtype.
  const std::map<std::string, std::string>& unread() const { return unread_; }

  // Whether data() is the file itself; else it makes a copy, and read() is better.
  virtual bool is_mapped() const { return true; }
  // All elements in row-major order; `info` is one of tensors(). Thread-safe.
  virtual const std::byte* data(const TensorInfo& info) const = 0;
  // Elements [begin, end) of them; needs no more memory than `out`. Thread-safe.
  virtual void read(const TensorInfo& info, int64_t begin, int64_t end, void* out) const = 0;
  virtual void drop_pages() const = 0;

 protected:
  void set_tensors(std::vector<TensorInfo> tensors);
  std::map<std::string, std::string> unread_;

 private:
  std::filesystem::path path_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t> index_;
};

}  // namespace weft
