// model/model.cpp: initial values, frozen parameters, counts.
#include "model/model.h"

#include <fnmatch.h>

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/random.h"
#include "model/stored.h"

namespace weft {

const char* Model::way_to_more_positions() const {
  return "raise max_position_embeddings in config.json";
}

void Model::trace_encode(Graph*, const TraceOptions&) const {
  throw BugError(fmt::format("{} has no encoder", family()));
}

int32_t Model::start_id() const {
  throw BugError(fmt::format("{} has no token that begins a target", family()));
}

void initial_values(const ParameterSpec& spec, uint64_t seed, int64_t begin, int64_t end,
                    float* out) {
  const InitRule::Kind kind = spec.init.kind;
  if (kind != InitRule::Kind::kNormal) {
    const double value = kind == InitRule::Kind::kOnes       ? 1
                         : kind == InitRule::Kind::kConstant ? spec.init.std
                                                             : 0;
    std::fill(out, out + (end - begin), static_cast<float>(value));
    return;
  }
  const uint64_t stream = hash_text(spec.name);
  for (int64_t i = begin; i < end;) {
    const auto pair = normal_pair(seed, stream, static_cast<uint64_t>(i) / 2);
    for (int64_t k = i % 2; k < 2 && i < end; ++k, ++i) {
      out[i - begin] = static_cast<float>(spec.init.std * pair[static_cast<size_t>(k)]);
    }
  }
  if (spec.init.zero_row < 0) return;
  const int64_t row = spec.shape[1];
  const int64_t zero_begin = std::max(begin, spec.init.zero_row * row);
  const int64_t zero_end = std::min(end, (spec.init.zero_row + 1) * row);
  for (int64_t i = zero_begin; i < zero_end; ++i) out[i - begin] = 0;
}

float initial_element(const ParameterSpec& spec, uint64_t seed, int64_t i) {
  float v;
  initial_values(spec, seed, i, i + 1, &v);
  return v;
}

void freeze_parameters(Graph* graph, const std::vector<ParameterSpec>& parameters,
                       const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (const ParameterSpec& p : parameters) {
      if (::fnmatch(pattern.c_str(), stored_as(p).name.c_str(), 0) != 0) continue;
      const auto found = graph->find(p.name);
      ensure(found.has_value(), "the graph has no " + p.name);
      (*graph)[*found].frozen = any = true;
    }
    if (!any) {
      throw UserError(fmt::format("model.freeze: \"{}\" matches no parameter", pattern),
                      "`weft inspect` on the model's folder lists the names");
    }
  }
}

int64_t count_parameters(const Model& model) {
  int64_t n = 0;
  for (const ParameterSpec& p : model.parameters()) n += num_elements(p.shape);
  return n;
}

}  // namespace weft
