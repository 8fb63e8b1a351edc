// checkpoint/load.h: a model's parameters from any kind of storage, checked and converted.
//
// model/load.h reads only Hugging Face folders; this also reads checkpoints and run directories.
#pragma once

#include "checkpoint/logical.h"
#include "model/model.h"

namespace weft {

// The stored weight that the parameter is a box of, checked as in load_parameter.
const LogicalTensor& find_parameter(const LogicalModel& source, const ParameterSpec& spec);

// Fills data with the parameter, converted to `to`. UserError naming tensor, location,
// actual and expected where it is missing, has another shape or is not floating. Thread-safe.
void load_parameter(const LogicalModel& source, const ParameterSpec& spec, Dtype to, void* data);

// The dtype in which the weights are stored: that of the model's first parameter.
Dtype stored_dtype(const LogicalModel& source, const Model& model);

// model/load.h's, where it is of a folder: checkpoints are our own.
void warn_of_unknown_tensors(const LogicalModel& source);

}  // namespace weft
