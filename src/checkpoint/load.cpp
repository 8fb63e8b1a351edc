// checkpoint/load.cpp: checks on a tensor before its bytes are used.
#include "checkpoint/load.h"

#include <algorithm>

#include "base/error.h"
#include "model/load.h"

namespace weft {
namespace {

constexpr int64_t kPiece = int64_t{1} << 20;  // elements converted at a time

const LogicalTensor& find_floating(const LogicalModel& source, const ParameterSpec& spec) {
  const auto found =
      std::lower_bound(source.weights.begin(), source.weights.end(), spec.name,
                       [](const LogicalTensor& t, const std::string& n) { return t.name < n; });
  if (found == source.weights.end() || found->name != spec.name) {
    throw UserError(fmt::format("{} has no tensor \"{}\" {}, which its config.json requires",
                                source.path.string(), spec.name, to_string(spec.shape)),
                    spec.name == "lm_head.weight"
                        ? "set tie_word_embeddings to true if the head is the embedding"
                        : "`weft inspect` lists its tensors");
  }
  const Dtype d = found->dtype;
  require(d == Dtype::kF32 || d == Dtype::kBf16 || d == Dtype::kF16 || d == Dtype::kF64,
          "{}: tensor \"{}\" has dtype {}, wanted fp32, bf16, fp16 or f64", source.path.string(),
          spec.name, dtype_name(d));
  return *found;
}

}  // namespace

const LogicalTensor& find_parameter(const LogicalModel& source, const ParameterSpec& spec) {
  const LogicalTensor& tensor = find_floating(source, spec);
  require(tensor.shape == spec.shape, "{}: tensor \"{}\" has shape {}, but config.json requires {}",
          source.path.string(), spec.name, to_string(tensor.shape), to_string(spec.shape));
  return tensor;
}

void load_parameter(const LogicalModel& source, const ParameterSpec& spec, Dtype to, void* data) {
  const LogicalTensor& tensor = find_parameter(source, spec);
  const int64_t n = num_elements(spec.shape);
  if (tensor.dtype == to) return tensor.read(0, n, data);
  std::vector<std::byte> piece(
      static_cast<size_t>(std::min(n, kPiece) * dtype_bytes(tensor.dtype)));
  for (int64_t begin = 0; begin < n; begin += kPiece) {
    const int64_t end = std::min(n, begin + kPiece);
    tensor.read(begin, end, piece.data());
    convert_elements(piece.data(), tensor.dtype,
                     static_cast<std::byte*>(data) + begin * dtype_bytes(to), to, end - begin);
  }
}

void warn_of_unknown_tensors(const LogicalModel& source) {
  if (source.kind != LogicalModel::Kind::kFolder) return;
  std::vector<std::string> names;
  for (const LogicalTensor& t : source.weights) names.push_back(t.name);
  warn_of_unknown_tensors(names, source.config, source.path);
}

Dtype stored_dtype(const LogicalModel& source, const Model& model) {
  return find_floating(source, model.parameters().front()).dtype;
}

}  // namespace weft
