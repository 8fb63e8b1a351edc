// model/traced_inputs.cpp: resolves dims to numbers.
#include "model/traced_inputs.h"

#include <algorithm>

#include "base/error.h"

namespace weft {
namespace {

int64_t size_of(Dim dim, const TraceOptions& options) {
  switch (dim) {
    case Dim::kRows:
      return options.batch;
    case Dim::kTarget:
      return options.positions;
    case Dim::kSource:
      return options.source_positions;
    case Dim::kOne:
      return 1;
    case Dim::kTwo:
      return 2;
  }
  throw BugError("an input has an invalid dim");
}

}  // namespace

TracedInputs::TracedInputs(Builder* builder, const std::vector<InputSpec>& specs,
                           const TraceOptions& options) {
  for (const InputSpec& spec : specs) {
    ensure(!spec.dims.empty() && spec.dims[0] == Dim::kRows,
           spec.name + " has no rows, by which batches are cut");
    Shape shape;
    for (Dim dim : spec.dims) shape.push_back(size_of(dim, options));
    const bool is_new =
        refs_.emplace(spec.name, builder->input(spec.name, shape, spec.dtype, spec.fill)).second;
    ensure(is_new, spec.name + " is declared twice");
  }
}

Ref TracedInputs::operator[](std::string_view name) const {
  const auto found = refs_.find(name);
  return found == refs_.end() ? Ref{} : found->second;
}

bool reads_input(const Model& model, std::string_view name) {
  const std::vector<InputSpec> all = model.inputs({});
  return std::any_of(all.begin(), all.end(), [&](const InputSpec& s) { return s.name == name; });
}

bool reads_source(const Model& model) {
  for (const InputSpec& spec : model.inputs({})) {
    for (Dim dim : spec.dims) {
      if (dim == Dim::kSource) return true;
    }
  }
  return false;
}

}  // namespace weft
