// checkpoint/load.cpp: checks on a tensor before its bytes are used.
#include "checkpoint/load.h"

#include <algorithm>

#include "base/error.h"
#include "graph/portion.h"
#include "model/family.h"
#include "model/load.h"
#include "model/stored.h"

namespace weft {
namespace {

const LogicalTensor* find_by_name(const LogicalModel& source, const std::string& name) {
  const auto found =
      std::lower_bound(source.weights.begin(), source.weights.end(), name,
                       [](const LogicalTensor& t, const std::string& n) { return t.name < n; });
  return found != source.weights.end() && found->name == name ? &*found : nullptr;
}

const LogicalTensor& find_floating(const LogicalModel& source, const StoredAs& stored) {
  const LogicalTensor* found = find_by_name(source, stored.name);
  if (!found) found = find_by_name(source, without_base_prefix(stored.name));
  if (!found) {
    throw UserError(fmt::format("{} has no tensor \"{}\" {}, which its config.json requires",
                                source.path.string(), stored.name, to_string(stored.shape)),
                    stored.name == traits_of(source.config).head
                        ? "set tie_word_embeddings to true if the head is the embedding"
                        : "`weft inspect` lists its tensors");
  }
  const Dtype d = found->dtype;
  require(d == Dtype::kF32 || d == Dtype::kBf16 || d == Dtype::kF16 || d == Dtype::kF64,
          "{}: tensor \"{}\" has dtype {}, wanted fp32, bf16, fp16 or f64", source.path.string(),
          stored.name, dtype_name(d));
  return *found;
}

}  // namespace

const LogicalTensor& find_parameter(const LogicalModel& source, const ParameterSpec& spec) {
  const StoredAs stored = stored_as(spec);
  const LogicalTensor& tensor = find_floating(source, stored);
  require(tensor.shape == stored.shape,
          "{}: tensor \"{}\" has shape {}, but config.json requires {}", source.path.string(),
          stored.name, to_string(tensor.shape), to_string(stored.shape));
  return tensor;
}

void load_parameter(const LogicalModel& source, const ParameterSpec& spec, Dtype to, void* data) {
  const LogicalTensor& tensor = find_parameter(source, spec);
  std::vector<std::byte> piece;
  for_each_run(whole_as_stored(spec), [&](int64_t from, int64_t count, int64_t at) {
    std::byte* out = static_cast<std::byte*>(data) + at * dtype_bytes(to);
    if (tensor.dtype == to) return tensor.read(from, from + count, out);
    for (int64_t begin = 0; begin < count; begin += kPieceElements) {
      const int64_t n = std::min(kPieceElements, count - begin);
      piece.resize(static_cast<size_t>(n * dtype_bytes(tensor.dtype)));
      tensor.read(from + begin, from + begin + n, piece.data());
      convert_elements(piece.data(), tensor.dtype, out + begin * dtype_bytes(to), to, n);
    }
  });
}

void warn_of_unknown_tensors(const LogicalModel& source) {
  if (source.kind != LogicalModel::Kind::kFolder) return;
  std::vector<std::string> names;
  for (const LogicalTensor& t : source.weights) names.push_back(t.name);
  warn_of_unknown_tensors(names, source.config, source.path);
}

Dtype stored_dtype(const LogicalModel& source, const Model& model) {
  return find_floating(source, stored_as(model.parameters().front())).dtype;
}

}  // namespace weft
