// train/final_model.cpp: exports parameters, configuration and tokenizer (checkpoint/export).
#include "train/final_model.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/error.h"
#include "base/mapped_files.h"
#include "checkpoint/export.h"
#include "checkpoint/join.h"
#include "checkpoint/list.h"
#include "checkpoint/torch_pieces.h"
#include "model/load.h"
#include "model/stored.h"
#include "text/known_templates.h"
#include "train/generation_config.h"

namespace weft {
namespace {

// A parameter's initial values.
TensorBox initial_box(const Session& session, const ParameterSpec& spec) {
  const Portion box = whole_as_stored(spec);
  const auto seed = static_cast<uint64_t>(session.config.seed);
  return {box.offset, box.extent, [spec, seed](int64_t begin, int64_t end, void* out) {
            initial_values(spec, seed, begin, end, static_cast<float*>(out));
          }};
}

// What a tensor was before the first step, in fp32.
LogicalTensor start_of(const Session& session, const FileTensor& tensor) {
  if (session.config.model.init == "random") {
    std::vector<TensorBox> boxes;
    for (const ParameterSpec* part : tensor.parts) boxes.push_back(initial_box(session, *part));
    return join_boxes(tensor.name, tensor.shape, Dtype::kF32, std::move(boxes));
  }
  LogicalTensor start{tensor.name, tensor.shape, Dtype::kF32, {}};
  const HfFolder::Found found = find_stored(session.folder, tensor.name);
  if (!found.file->is_mapped()) {
    start.dtype = found.info->dtype;
    start.read = [found](int64_t begin, int64_t end, void* out) {
      found.file->read(*found.info, begin, end, out);
    };
    return in_fp32(std::move(start));
  }
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
  const std::vector<ParameterSpec> parameters = session.model->parameters();
  for (const FileTensor& file : file_tensors(parameters)) {
    for (LogicalTensor& tensor : *tensors) {
      if (tensor.name != file.name || dtype_bytes(tensor.dtype) != 2) continue;
      LogicalTensor start = start_of(session, file);
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
  // Serving then uses the same template as training.
  if (!session.config.data.messages.empty() && !has_chat_template(session.tokenizer->files()))
    files[kTemplateFile] = kPlainChatMl;
  files["config.json"] = saved_config(session).dump(2, Json::Digits::kShortest) + "\n";
  return files;
}

std::vector<LogicalTensor> tensors_in_memory(const std::vector<Slice>& slices) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<TensorBox>> boxes;
  std::map<std::string, const Slice*> first;
  for (const Slice& s : slices) {
    if (first.emplace(s.name, &s).second) names.push_back(s.name);
    boxes[s.name].push_back(
        {s.offset, s.extent, tensor_in_memory(s.name, s.extent, s.dtype, s.data).read});
  }
  std::vector<LogicalTensor> tensors;
  for (const std::string& name : names) {
    const Slice& s = *first[name];
    tensors.push_back(join_boxes(name, s.shape, s.dtype, std::move(boxes[name])));
  }
  return tensors;
}

void require_best(std::optional<double> best, const std::string& measure, int64_t step) {
  if (best) return;
  throw RunError(
      fmt::format("train.early_stop ended the run at step {}: no evaluation had a finite {}, so no "
                  "final/ is written",
                  step, measure),
      "lower train.lr, or use train.precision: fp32, and start again with --overwrite");
}

int64_t write_best_as_final(const std::filesystem::path& run_dir, int64_t step,
                            const std::map<std::string, std::string>& files,
                            const Session& session) {
  const std::optional<SoundBest> best = find_sound_best(run_dir);
  if (!best) {
    throw RunError(
        fmt::format("train.early_stop ended the run at step {}, but {} is gone or damaged: no "
                    "final/ is written",
                    step, (run_dir / "checkpoints/best").string()),
        "restore it and run the same command again; or raise train.early_stop to continue");
  }
  write_final_model(run_dir / "final", open_logical(best->path.string()).weights, files, session);
  return best->step;
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
