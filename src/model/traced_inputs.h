// model/traced_inputs.h: a model's declared inputs as values of the graph that it traces.
#pragma once

#include <map>
#include <string_view>

#include "graph/builder.h"
#include "model/model.h"

namespace weft {

class TracedInputs {
 public:
  TracedInputs(Builder* builder, const std::vector<InputSpec>& specs, const TraceOptions& options);
  Ref operator[](std::string_view name) const;  // Ref{} where it is not declared

 private:
  std::map<std::string, Ref, std::less<>> refs_;
};

}  // namespace weft
