// model/stored.h: parameters as boxes of the tensors that Hugging Face's files hold.
#pragma once

#include "model/model.h"

namespace weft {

// The parameter's location, with StoredAs's defaults filled in: its own name and shape.
StoredAs stored_as(const ParameterSpec& spec);

// Elements of a parameter, or of a state of its shape (name#m), as elements of the stored tensor.
// States of other shapes stay under the parameter's own name.
Portion to_stored(const ParameterSpec& spec, Portion portion);
Portion whole_as_stored(const ParameterSpec& spec);  // all elements of the parameter

// A tensor of the model's files, and the parameters that fill it.
struct FileTensor {
  std::string name;
  Shape shape;
  std::vector<const ParameterSpec*> parts;
};
// In the order of the parameters, which must outlive it. BugError where the parts of a tensor do
// not fill it, or disagree about its shape.
std::vector<FileTensor> file_tensors(const std::vector<ParameterSpec>& parameters);

}  // namespace weft
