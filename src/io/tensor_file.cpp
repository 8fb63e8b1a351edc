// io/tensor_file.cpp: the index of names, and reads that leave no pages behind.
#include "io/tensor_file.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/mapped_files.h"

namespace weft {

std::optional<size_t> checked_bytes(const Shape& shape, Dtype dtype) {
  // Within int64, since counts of elements and bytes are signed everywhere else. A zero anywhere
  // makes the product zero, but the others must still fit: no later product may overflow.
  int64_t all = dtype_bytes(dtype);
  bool empty = false;
  for (int64_t extent : shape) {
    if (extent < 0) return std::nullopt;
    empty = empty || extent == 0;
    if (__builtin_mul_overflow(all, std::max<int64_t>(extent, 1), &all)) return std::nullopt;
  }
  return empty ? 0 : static_cast<size_t>(all);
}

void read_mapped(const MappedFile& map, size_t start, int64_t width, int64_t begin, int64_t end,
                 void* out) {
  constexpr size_t kPiece = size_t{4} << 20;
  if (begin >= end) return;
  const size_t from = start + static_cast<size_t>(begin * width);
  const auto bytes = static_cast<size_t>((end - begin) * width);
  ensure(from + bytes <= map.size(), "a read beyond the mapped file");
  for (size_t at = 0; at < bytes; at += kPiece) {
    const size_t count = std::min(kPiece, bytes - at);
    std::memcpy(static_cast<std::byte*>(out) + at, map.data() + from + at, count);
    if (bytes >= kLargeRead) map.drop_pages(from + at, from + at + count);
  }
  check_mapped_file(map.data());
}

void TensorFile::set_tensors(std::vector<TensorInfo> tensors) {
  tensors_ = std::move(tensors);
  for (size_t i = 0; i < tensors_.size(); ++i) index_[tensors_[i].name] = i;
}

const TensorInfo* TensorFile::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace weft
