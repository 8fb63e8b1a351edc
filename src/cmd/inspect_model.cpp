// cmd/inspect_model.cpp: the figures of a checkpoint, a Hugging Face folder, a safetensors file.
#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/foreign.h"
#include "checkpoint/logical.h"
#include "cmd/inspect.h"
#include "io/hf_folder.h"
#include "io/safetensors.h"
#include "model/family.h"
#include "model/load.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

void copy_key(const Json& from, const char* key, Json& to) {
  if (const Json* value = from.find(key)) to.set(key, *value);
}

// num_tensors, num_elements, bytes and tensors per dtype, for one list.
Json describe_list(const std::vector<LogicalTensor>& tensors) {
  int64_t elements = 0;
  uint64_t bytes = 0;
  Json dtypes(Json::Object{});
  for (const LogicalTensor& t : tensors) {
    elements += num_elements(t.shape);
    bytes += tensor_bytes(t);
    const Json* count = dtypes.find(dtype_name(t.dtype));
    dtypes.set(dtype_name(t.dtype), (count ? count->as_int() : 0) + 1);
  }
  Json out;
  out.set("tensors", uint64_t{tensors.size()});
  out.set("elements", elements);
  out.set("bytes", bytes);
  out.set("dtypes", std::move(dtypes));
  return out;
}

Json describe_tensors(const LogicalModel& model) {
  Json list(Json::Object{});
  for (const auto* part : {&model.weights, &model.states}) {
    for (const LogicalTensor& t : *part) {
      list.as_object().emplace_back(t.name,
                                    fmt::format("{} {}", dtype_name(t.dtype), to_string(t.shape)));
    }
  }
  return list;
}

// How the slices cut the tensors: whole, boxes (tensor parallel), flat ranges (ZeRO).
Json describe_layout(const CheckpointReader& reader) {
  int64_t whole = 0, boxes = 0, flat = 0;
  for (const auto& [name, t] : reader.tensors()) {
    for (const StoredSlice& s : t.slices) {
      const bool part = s.region.size() != num_elements(s.region.extent);
      ++(part ? flat : s.region.extent == t.shape ? whole : boxes);
    }
  }
  Json out;
  out.set("ranks", reader.index().at("num_ranks"));
  copy_key(reader.state(), "layout", out);
  out.set("whole_tensors", whole);
  out.set("box_slices", boxes);
  out.set("flat_slices", flat);
  return out;
}

void describe_checkpoint(const LogicalModel& model, Json& out) {
  const CheckpointReader reader(model.path);
  out.set("kind", "checkpoint");
  out.set("path", model.path.string());
  for (const char* key : {"step", "epoch", "weft"}) copy_key(reader.state(), key, out);
  out.set("layout", describe_layout(reader));
}

bool has_weights(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) return true;
    if (name.starts_with("pytorch_model") && name.ends_with(".bin")) return true;
  }
  return false;
}

void describe_folder(const LogicalModel& model, Json& out) {
  out.set("kind", "Hugging Face folder");
  out.set("path", model.path.string());
}

void describe_config(const Json& config, Json& out) {
  for (const char* key : {"architectures", "model_type"}) copy_key(config, key, out);
  for (const std::string& key : size_keys(config)) copy_key(config, key.c_str(), out);
  for (const char* key : {"tie_word_embeddings", "torch_dtype", "dtype"})
    copy_key(config, key, out);
}

// A folder with config.json and no weights: what a run with model.init: random needs.
Json describe_shape(const fs::path& folder) {
  const Json config = HfFolder(folder).config();
  Json out;
  out.set("kind", "Hugging Face folder");
  out.set("path", folder.string());
  describe_config(config, out);
  try {
    out.set("parameters", count_parameters(*make_model(config, {}, folder)));
  } catch (const UserError& e) {  // unknown architecture, absurd sizes
    out.set("cannot_train", e.what());
  }
  out.set("weights", "absent (no .safetensors or .bin file): usable only with model.init: random");
  return out;
}

void describe_metadata(const fs::path& path, Json& out) {
  const SafetensorsFile file(path);
  Json notes(Json::Object{});
  for (const auto& [key, value] : file.metadata()) notes.set(key, value);
  out.set("metadata", std::move(notes));
}

}  // namespace

Json inspect_model(const std::string& path) {
  if (const fs::path folder = path; fs::is_directory(folder) && !is_checkpoint(folder) &&
                                    !is_deepspeed(folder) && !is_dcp(folder) &&
                                    fs::exists(folder / "config.json") && !has_weights(folder)) {
    return describe_shape(folder);
  }
  const LogicalModel model = open_logical(path);
  Json out;
  if (model.kind == LogicalModel::Kind::kCheckpoint) {
    describe_checkpoint(model, out);
  } else if (model.kind == LogicalModel::Kind::kFolder) {
    describe_folder(model, out);
  } else {
    out.set("kind", model.format);
    out.set("path", model.path.string());
    for (const auto& [key, value] : model.details.as_object()) out.set(key, value);
    if (path.ends_with(".safetensors")) describe_metadata(path, out);
  }
  if (!model.config.is_null()) describe_config(model.config, out);
  const Json weights = describe_list(model.weights);
  out.set("parameters", weights.at("elements"));
  out.set("weights", weights);
  if (!model.states.empty()) out.set("states", describe_list(model.states));
  out.set("tensors", describe_tensors(model));
  if (!model.unread.empty()) {
    Json unread(Json::Object{});
    for (const auto& [name, reason] : model.unread) unread.set(name, reason);
    out.set("unread", std::move(unread));
  }
  if (!model.notes.empty()) {
    out.set("notes", Json::Array(model.notes.begin(), model.notes.end()));
  }
  return out;
}

}  // namespace weft
