// model/load.h: the tensors of a Hugging Face folder that a model's parameters start from.
#pragma once

#include "io/hf_folder.h"
#include "model/model.h"

namespace weft {

// The bytes of the stored tensor that the parameter is a box of. UserError naming tensor, file, got
// and wanted where it is missing, of another shape or not floating. Safe from several threads once
// open_weights() was called. A tied head is no parameter of its own, so it is not looked for.
struct ParameterSource {
  const std::byte* data;
  Dtype dtype;
};
ParameterSource find_parameter(const HfFolder& folder, const ParameterSpec& spec);

// All of the parameter, converted to `to` (fp32, bf16 or fp16).
void load_parameter(const HfFolder& folder, const ParameterSpec& spec, Dtype to, void* data);

// The type in which the folder keeps the model's parameters: that of the first one. UserError
// where it is missing or not floating.
Dtype stored_dtype(const HfFolder& folder, const Model& model);

// Warns of tensors that no parameter of the configuration asks for: their values would be lost
// without a word. Buffers that are computed anew and copies of a tied head are none of them.
void warn_of_unknown_tensors(const std::vector<std::string>& names, const Json& config,
                             const std::filesystem::path& path);

}  // namespace weft
