// checkpoint/compare.cpp: a merge of two sorted lists, each pair compared piece by piece.
#include "checkpoint/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/new_threads.h"
#include "checkpoint/checkpoint.h"

namespace weft {
namespace {

template <typename T>
double as_double(const std::byte* at) {
  T v;
  std::memcpy(&v, at, sizeof(T));
  return static_cast<double>(v);
}

double element(const std::byte* at, Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return as_double<double>(at);
    case Dtype::kI64:
      return as_double<int64_t>(at);
    case Dtype::kI32:
      return as_double<int32_t>(at);
    case Dtype::kI16:
      return as_double<int16_t>(at);
    case Dtype::kI8:
      return as_double<int8_t>(at);
    case Dtype::kU8:
    case Dtype::kBool:
      return as_double<uint8_t>(at);
    default:
      return load_element(at, dtype, 0);
  }
}

// The larger of two differences, NaN being larger than anything.
double larger(double a, double b) { return std::isnan(a) || a >= b ? a : b; }

double difference(double a, double b) {
  if (std::isnan(a) && std::isnan(b)) return 0;
  return a == b ? 0 : std::abs(a - b);
}

void compare_piece(const std::byte* a, Dtype a_type, const std::byte* b, Dtype b_type, int64_t from,
                   int64_t count, TensorDifference& d) {
  const int64_t a_width = dtype_bytes(a_type), b_width = dtype_bytes(b_type);
  const bool bits = a_type == b_type;
  if (bits && std::memcmp(a, b, static_cast<size_t>(count * a_width)) == 0) return;
  for (int64_t i = 0; i < count; ++i) {
    const std::byte *x = a + i * a_width, *y = b + i * b_width;
    if (bits && std::memcmp(x, y, static_cast<size_t>(a_width)) == 0) continue;
    const double u = element(x, a_type), v = element(y, b_type);
    if (!bits && difference(u, v) == 0) continue;
    if (d.first < 0) {
      d.first = from + i;
      d.first_a = u;
      d.first_b = v;
    }
    ++d.num_different;
    d.max_difference = larger(d.max_difference, difference(u, v));
  }
}

Shape index_of(int64_t at, const Shape& shape) {
  Shape index(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    index[i] = at % shape[i];
    at /= shape[i];
  }
  return index;
}

TensorDifference compare_tensors(const LogicalTensor& a, const LogicalTensor& b) {
  TensorDifference d;
  d.name = a.name;
  if (a.dtype != b.dtype) {
    d.fault = fmt::format("dtype {} and {}", dtype_name(a.dtype), dtype_name(b.dtype));
  }
  if (a.shape != b.shape) {
    d.fault = fmt::format("shape {} and {}", to_string(a.shape), to_string(b.shape));
    return d;
  }
  d.num_elements = num_elements(a.shape);
  const int64_t piece = std::min(d.num_elements, kPieceElements);
  std::vector<std::byte> x(static_cast<size_t>(piece * dtype_bytes(a.dtype)));
  std::vector<std::byte> y(static_cast<size_t>(piece * dtype_bytes(b.dtype)));
  for (int64_t from = 0; from < d.num_elements; from += piece) {
    const int64_t to = std::min(from + piece, d.num_elements);
    a.read(from, to, x.data());
    b.read(from, to, y.data());
    compare_piece(x.data(), a.dtype, y.data(), b.dtype, from, to - from, d);
  }
  if (d.first >= 0) d.first_index = index_of(d.first, a.shape);
  return d;
}

void compare_lists(const std::vector<LogicalTensor>& a, const std::vector<LogicalTensor>& b,
                   Comparison& out) {
  auto only = [&](const LogicalTensor& t, const char* side) {
    out.differences.emplace_back();
    out.differences.back().name = t.name;
    out.differences.back().fault = fmt::format("only in {}", side);
  };
  // Every pair is compared by one of several threads; the differences keep the order of the names.
  std::vector<std::pair<const LogicalTensor*, const LogicalTensor*>> pairs;
  std::vector<TensorDifference> found;
  const size_t begin = out.differences.size();
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (j == b.size() || (i < a.size() && a[i].name < b[j].name)) {
      only(a[i++], "A");
    } else if (i == a.size() || b[j].name < a[i].name) {
      only(b[j++], "B");
    } else {
      pairs.emplace_back(&a[i++], &b[j++]);
    }
  }
  out.num_compared += static_cast<int64_t>(pairs.size());
  found.resize(pairs.size());
  run_on_new_threads(kReadThreads, pairs.size(), [&](size_t k) {
    found[k] = compare_tensors(*pairs[k].first, *pairs[k].second);
  });
  for (TensorDifference& d : found) {
    if (!d.fault.empty() || d.num_different > 0) out.differences.push_back(std::move(d));
  }
  std::stable_sort(out.differences.begin() + static_cast<std::ptrdiff_t>(begin),
                   out.differences.end(),
                   [](const auto& x, const auto& y) { return x.name < y.name; });
}

}  // namespace

std::string to_string(const TensorDifference& d) {
  std::string line = d.name;
  if (!d.fault.empty()) line += " " + d.fault;
  if (d.num_elements == 0) return line;
  line += fmt::format(" max_diff {:.9g} different {} of {}", d.max_difference, d.num_different,
                      d.num_elements);
  if (d.first < 0) return line;
  return line +
         fmt::format(" first {} {:.9g} {:.9g}", to_string(d.first_index), d.first_a, d.first_b);
}

Comparison compare_models(const LogicalModel& a, const LogicalModel& b) {
  Comparison out;
  compare_lists(a.weights, b.weights, out);
  out.states_compared = !a.states.empty() && !b.states.empty();
  if (out.states_compared) compare_lists(a.states, b.states, out);
  return out;
}

}  // namespace weft
