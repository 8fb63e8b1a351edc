// data/batch.cpp: tensors looked up by name, and the lengths that passes need.
#include "data/batch.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "tensor/names.h"

namespace weft {
namespace {

template <typename T>
constexpr Dtype kDtypeOf = Dtype::kI32;
template <>
constexpr Dtype kDtypeOf<int64_t> = Dtype::kI64;

template <typename T, typename Tensor>
auto view(Tensor* tensor, std::string_view name) {
  if (!tensor || tensor->dtype != kDtypeOf<std::remove_const_t<T>>)
    throw BugError(fmt::format("the batch has no {} of that type", name));
  return std::span<T>(reinterpret_cast<T*>(tensor->bytes.data()), tensor->bytes.size() / sizeof(T));
}

int64_t longest(std::span<const int32_t> lengths, int64_t first, int64_t rows) {
  return std::ranges::max(lengths.subspan(static_cast<size_t>(first), static_cast<size_t>(rows)));
}

}  // namespace

const BatchTensor* Batch::find(std::string_view name) const {
  for (const BatchTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

template <typename T>
std::span<T> Batch::values(std::string_view name) {
  return view<T>(const_cast<BatchTensor*>(find(name)), name);
}

template <typename T>
std::span<const T> Batch::values(std::string_view name) const {
  return view<const T>(find(name), name);
}

template <typename T>
std::span<T> Batch::reset(std::string_view name, int64_t width, T value) {
  auto* tensor = const_cast<BatchTensor*>(find(name));
  if (!tensor) {
    tensor = &tensors.emplace_back();
    tensor->name = name;
  }
  tensor->dtype = kDtypeOf<T>;
  tensor->width = width;
  tensor->bytes.resize(static_cast<size_t>(num_rows * width) * sizeof(T));
  const std::span<T> all = view<T>(tensor, name);
  std::ranges::fill(all, value);
  return all;
}

template <typename T>
void Batch::set(std::string_view name, int64_t width, const std::vector<T>& values) {
  ensure(static_cast<int64_t>(values.size()) == num_rows * width,
         fmt::format("{} has {} elements, wanted {} rows of {}", name, values.size(), num_rows,
                     width));
  std::ranges::copy(values, reset<T>(name, width, 0).begin());
}

#define INSTANTIATE(T)                                                  \
  template std::span<T> Batch::values<T>(std::string_view);             \
  template std::span<const T> Batch::values<T>(std::string_view) const; \
  template std::span<T> Batch::reset<T>(std::string_view, int64_t, T);  \
  template void Batch::set<T>(std::string_view, int64_t, const std::vector<T>&);
INSTANTIATE(int32_t)
INSTANTIATE(int64_t)
#undef INSTANTIATE

Lengths pass_length(const Batch& batch, int64_t pass) {
  if (batch.pass_lengths.empty()) return batch.padded;
  const auto last = static_cast<int64_t>(batch.pass_lengths.size()) - 1;
  return batch.pass_lengths[static_cast<size_t>(std::min(pass, last))];
}

int64_t bucket_length(int64_t longest, int64_t seq_length) {
  int64_t step = 16;
  if (longest > 64)
    step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(longest - 1))) / 4;
  const int64_t rounded = (std::max<int64_t>(longest, 1) + step - 1) / step * step;
  return std::min(rounded, seq_length);
}

void cut_passes(int64_t rows_per_pass, Batch& batch) {
  batch.pass_lengths.clear();
  batch.positions = 0;
  const auto targets = batch.values(names::kLengths);
  const bool has_source = batch.padded.source > 0;
  for (int64_t first = 0; first < batch.num_rows; first += rows_per_pass) {
    const int64_t rows = std::min(rows_per_pass, batch.num_rows - first);
    Lengths cut{bucket_length(longest(targets, first, rows), batch.padded.target)};
    if (has_source)
      cut.source = bucket_length(longest(batch.values(names::kSourceLengths), first, rows),
                                 batch.padded.source);
    batch.pass_lengths.push_back(cut);
    batch.positions += rows * (cut.target + cut.source);
  }
}

}  // namespace weft
