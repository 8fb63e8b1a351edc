// model/load.h: the tensors of a Hugging Face folder that a model's parameters start from.
#pragma once

#include "io/hf_folder.h"
#include "model/model.h"

namespace weft {

// The folder's tensor of that name, or of the name without the base model's prefix: files may hold
// "h.0.ln_1.weight" for "transformer.h.0.ln_1.weight". file null where it has neither.
HfFolder::Found find_stored(const HfFolder& folder, const std::string& name);
// The name without that prefix; itself where it has none.
std::string without_base_prefix(const std::string& name);

// The bytes of the stored tensor that the parameter is a box of. UserError naming tensor, file,
// actual and expected where it is missing, has another shape or is not floating. Thread-safe once
// open_weights() was called. A tied head is not a separate parameter, so it is not looked up.
struct ParameterSource {
  const TensorFile* file;
  const TensorInfo* info;
  const std::byte* data;  // null where the file is not mapped
  // Elements [begin, begin + count) of the stored tensor, converted.
  void read(int64_t begin, int64_t count, Dtype to, void* out) const;
};
ParameterSource find_parameter(const HfFolder& folder, const ParameterSpec& spec);

// All of the parameter, converted to `to` (fp32, bf16 or fp16).
void load_parameter(const HfFolder& folder, const ParameterSpec& spec, Dtype to, void* data);

// The dtype in which the folder stores the model's parameters: that of the first one. UserError
// where it is missing or not floating.
Dtype stored_dtype(const HfFolder& folder, const Model& model);

// Warns of tensors that match no parameter of the configuration: their values would be lost
// silently. Buffers that are recomputed and copies of a tied head do not count.
void warn_of_unknown_tensors(const std::vector<std::string>& names, const Json& config,
                             const std::filesystem::path& path);

}  // namespace weft
