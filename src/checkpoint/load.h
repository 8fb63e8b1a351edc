// checkpoint/load.h: a model's parameters from whatever holds them, checked and converted.
//
// model/load.h reads Hugging Face folders alone; this reads checkpoints and run directories too.
#pragma once

#include "checkpoint/logical.h"
#include "model/model.h"

namespace weft {

// The weight of spec's name, checked as load_parameter says.
const LogicalTensor& find_parameter(const LogicalModel& source, const ParameterSpec& spec);

// Fills data with the weight of spec's name, converted to `to`. UserError naming tensor, place, got
// and wanted where it is missing, of another shape or not floating. Safe from several threads.
void load_parameter(const LogicalModel& source, const ParameterSpec& spec, Dtype to, void* data);

// The type in which the weights are kept: that of the model's first parameter.
Dtype stored_dtype(const LogicalModel& source, const Model& model);

// model/load.h's, where it is of a folder: checkpoints are our own.
void warn_of_unknown_tensors(const LogicalModel& source);

}  // namespace weft
