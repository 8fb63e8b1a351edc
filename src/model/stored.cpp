// model/stored.cpp: translates offsets into the stored tensor.
#include "model/stored.h"

#include <algorithm>

#include "base/error.h"

namespace weft {

StoredAs stored_as(const ParameterSpec& spec) {
  if (!spec.stored.name.empty()) return spec.stored;
  return {spec.name, spec.shape, Shape(spec.shape.size(), 0)};
}

Portion to_stored(const ParameterSpec& spec, Portion portion) {
  // A state of fewer elements (one per block) is not a box of the stored tensor.
  if (spec.stored.name.empty() || portion.shape != spec.shape) return portion;
  const auto& [name, shape, begin] = spec.stored;
  ensure(shape.size() == spec.shape.size() && begin.size() == shape.size(),
         fmt::format("{} is not a box of {} {}", spec.name, name, to_string(shape)));
  portion.name = name + portion.name.substr(spec.name.size());
  portion.shape = shape;
  for (size_t d = 0; d < shape.size(); ++d) {
    portion.offset[d] += begin[d];
    ensure(portion.offset[d] + portion.extent[d] <= shape[d],
           fmt::format("{} exceeds {} {}", spec.name, name, to_string(shape)));
  }
  return portion;
}

Portion whole_as_stored(const ParameterSpec& spec) {
  return to_stored(spec, {spec.name, spec.shape, Shape(spec.shape.size(), 0), spec.shape, 0,
                          num_elements(spec.shape)});
}

std::vector<FileTensor> file_tensors(const std::vector<ParameterSpec>& parameters) {
  std::vector<FileTensor> tensors;
  for (const ParameterSpec& p : parameters) {
    const StoredAs stored = stored_as(p);
    auto found = std::find_if(tensors.begin(), tensors.end(),
                              [&](const FileTensor& t) { return t.name == stored.name; });
    if (found == tensors.end()) found = tensors.insert(found, {stored.name, stored.shape, {}});
    ensure(found->shape == stored.shape, p.name + " has another stored shape than its neighbours");
    found->parts.push_back(&p);
  }
  for (const FileTensor& t : tensors) {
    int64_t filled = 0;
    for (const ParameterSpec* p : t.parts) filled += num_elements(p->shape);
    ensure(filled == num_elements(t.shape),
           fmt::format("the parameters of {} cover {} of its {} elements", t.name, filled,
                       num_elements(t.shape)));
  }
  return tensors;
}

}  // namespace weft
