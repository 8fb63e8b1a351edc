// train/final_model.cpp: exports parameters, configuration and tokenizer (checkpoint/export).
#include "train/final_model.h"

#include <algorithm>
#include <memory>

#include "base/mapped_files.h"
#include "checkpoint/export.h"
#include "train/generation_config.h"

namespace weft {
namespace {

// What a parameter was before the first step, in fp32.
LogicalTensor start_of(const Session& session, const ParameterSpec& spec) {
  LogicalTensor start{spec.name, spec.shape, Dtype::kF32, {}};
  if (session.config.model.init == "random") {
    const auto seed = static_cast<uint64_t>(session.config.seed);
    start.read = [spec, seed](int64_t begin, int64_t end, void* out) {
      for (int64_t i = begin; i < end; ++i)
        static_cast<float*>(out)[i - begin] = initial_element(spec, seed, i);
    };
    return start;
  }
  const HfFolder::Found found = session.folder.find(spec.name);
  const std::byte* data = found.file->data(*found.info);
  start.read = [data, dtype = found.info->dtype](int64_t begin, int64_t end, void* out) {
    convert_elements(data + begin * dtype_bytes(dtype), dtype, out, Dtype::kF32, end - begin);
    check_mapped_file(data);
  };
  return start;
}

// Whether the 16-bit values are the initial ones, rounded: training did not change the parameter.
bool is_unchanged(const LogicalTensor& start, const LogicalTensor& held) {
  constexpr int64_t kStretch = 1 << 14;
  const auto values = std::make_unique<float[]>(kStretch);
  const auto now = std::make_unique<uint16_t[]>(kStretch);
  const auto rounded = std::make_unique<uint16_t[]>(kStretch);
  const int64_t n = num_elements(start.shape);
  for (int64_t begin = 0; begin < n; begin += kStretch) {
    const int64_t end = std::min(n, begin + kStretch);
    start.read(begin, end, values.get());
    held.read(begin, end, now.get());
    convert_elements(values.get(), Dtype::kF32, rounded.get(), held.dtype, end - begin);
    if (!std::equal(now.get(), now.get() + (end - begin), rounded.get())) return false;
  }
  return true;
}

// A frozen parameter exists only in the compute type; it is exported with its original, unrounded
// values.
void undo_rounding(const Session& session, std::vector<LogicalTensor>* tensors) {
  for (const ParameterSpec& spec : session.model->parameters()) {
    for (LogicalTensor& tensor : *tensors) {
      if (tensor.name != spec.name || dtype_bytes(tensor.dtype) != 2) continue;
      LogicalTensor start = start_of(session, spec);
      if (is_unchanged(start, tensor)) tensor = std::move(start);
    }
  }
}

}  // namespace

std::map<std::string, std::string> side_files(const Session& session) {
  std::map<std::string, std::string> files = session.folder.side_files();
  if (const auto generation = saved_generation_config(session))
    files["generation_config.json"] = *generation;
  for (auto& [name, bytes] : session.tokenizer->files()) files[name] = bytes;
  files["config.json"] = saved_config(session).dump(2, Json::Digits::kShortest) + "\n";
  return files;
}

std::vector<LogicalTensor> tensors_in_memory(const std::vector<Slice>& slices) {
  std::vector<LogicalTensor> tensors;
  for (const Slice& s : slices)
    tensors.push_back(tensor_in_memory(s.name, s.shape, s.dtype, s.data));
  return tensors;
}

void write_final_model(const std::filesystem::path& out, std::vector<LogicalTensor> weights,
                       std::map<std::string, std::string> files, const Session& session) {
  ExportOptions options;
  options.dtype = session.final_dtype;
  options.overwrite = true;  // a resumed run replaces its own final/
  files.erase("config.json");
  undo_rounding(session, &weights);
  export_hf(weights, saved_config(session), files, out, options);
}

}  // namespace weft
