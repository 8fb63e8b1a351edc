// model/load.h: parameters filled from the tensors of a Hugging Face folder, checked and converted.
#pragma once

#include "io/hf_folder.h"
#include "model/model.h"

namespace weft {

// Fills data with the tensor of spec's name, converted to `to` (fp32, bf16 or fp16). UserError
// naming tensor, file, got and wanted where it is missing, of another shape or not floating. Safe
// from several threads once open_weights() was called. A tied head is no parameter of its own, so
// it is not looked for.
void load_parameter(const HfFolder& folder, const ParameterSpec& spec, Dtype to, void* data);

// The type in which the folder keeps the model's parameters: that of the first one. UserError
// where it is missing or not floating.
Dtype stored_dtype(const HfFolder& folder, const Model& model);

}  // namespace weft
