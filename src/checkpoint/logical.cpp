// checkpoint/logical.cpp: several kinds of storage, one list of tensors.
#include "checkpoint/logical.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/foreign.h"
#include "checkpoint/list.h"
#include "io/hf_folder.h"
#include "io/torch_file.h"
#include "model/family.h"
#include "model/head_in_files.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

LogicalTensor tensor_in_file(std::shared_ptr<const void> owner, const TensorFile& file,
                             const TensorInfo& info) {
  auto read = [owner = std::move(owner), &file, &info](int64_t begin, int64_t end, void* out) {
    file.read(info, begin, end, out);
  };
  return {info.name, info.shape, info.dtype, std::move(read)};
}

LogicalTensor tensor_in_checkpoint(std::shared_ptr<const CheckpointReader> reader,
                                   const std::string& name, const StoredTensor& stored) {
  auto read = [reader = std::move(reader), name, shape = stored.shape, dtype = stored.dtype](
                  int64_t begin, int64_t end, void* out) {
    Slice slice = whole_tensor(name, shape, dtype, out);
    slice.flat_begin = begin;
    slice.flat_end = end;
    reader->read(slice);
  };
  return {name, stored.shape, stored.dtype, std::move(read)};
}

// Sorts tensors into weights and states; a master copy replaces its weight.
void sort_tensors(std::vector<LogicalTensor> tensors, LogicalModel& model) {
  std::set<std::string> mastered;
  for (LogicalTensor& t : tensors) {
    if (!t.name.ends_with(kMaster)) continue;
    t.name.resize(t.name.size() - kMaster.size());
    mastered.insert(t.name);
    model.weights.push_back(std::exchange(t, LogicalTensor{}));
  }
  for (LogicalTensor& t : tensors) {
    if (t.name.empty() || mastered.contains(t.name)) continue;
    const bool state = t.name.find('#') != std::string::npos;
    (state ? model.states : model.weights).push_back(std::move(t));
  }
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  std::sort(model.weights.begin(), model.weights.end(), by_name);
  std::sort(model.states.begin(), model.states.end(), by_name);
}

// The embedding that a tensor repeats, where `has` says that the model holds it; else "".
template <typename Has>
std::string tied_embedding(const std::string& name, const Json& config, const Has& has) {
  const FamilyTraits& traits = traits_of(config);
  const auto& copies = traits.embedding_copies;
  const bool is_copy = std::find(copies.begin(), copies.end(), name) != copies.end();
  if (!is_copy && (name != traits.head || !ties_head(config))) return "";
  for (const std::string& embedding : traits.embeddings) {
    if (has(embedding)) return embedding;
  }
  return "";
}

// Copies of the embedding that some folders also store: listed once, as in checkpoints.
bool is_tied_copy(const std::string& name, const HfFolder& folder, const Json& config) {
  const auto has = [&](const std::string& other) { return folder.find(other).file != nullptr; };
  return !tied_embedding(name, config, has).empty();
}

const LogicalTensor* find_weight(const LogicalModel& model, const std::string& name) {
  for (const LogicalTensor& t : model.weights) {
    if (t.name == name) return &t;
  }
  return nullptr;
}

bool same_bits(const LogicalTensor& a, const LogicalTensor& b) {
  if (a.shape != b.shape || a.dtype != b.dtype) return false;
  const int64_t n = num_elements(a.shape), width = dtype_bytes(a.dtype);
  std::vector<std::byte> x(static_cast<size_t>(std::min(n, kPieceElements) * width)), y(x.size());
  for (int64_t at = 0; at < n; at += kPieceElements) {
    const int64_t end = std::min(n, at + kPieceElements);
    a.read(at, end, x.data());
    b.read(at, end, y.data());
    if (std::memcmp(x.data(), y.data(), static_cast<size_t>((end - at) * width)) != 0) return false;
  }
  return true;
}

LogicalModel open_file(const fs::path& path) {
  const bool is_torch = is_torch_file(path);
  std::shared_ptr<const TensorFile> file;
  if (is_torch) {
    file = std::make_shared<const TorchFile>(path);
  } else {
    file = std::make_shared<const SafetensorsFile>(path);
  }
  std::vector<LogicalTensor> tensors;
  for (const TensorInfo& info : file->tensors()) {
    tensors.push_back(tensor_in_file(file, *file, info));
  }
  LogicalModel model;
  model.format = is_torch ? "PyTorch file" : "safetensors file";
  model.path = path;
  model.unread = file->unread();
  sort_tensors(std::move(tensors), model);
  return model;
}

LogicalModel model_of(LogicalModel::Kind kind, const fs::path& path) {
  LogicalModel model;
  model.kind = kind;
  model.path = model.config_folder = path;
  return model;
}

// A configuration alone is good only for training.
void require_weights(const HfFolder& folder) {
  if (folder.has_weights()) return;
  if (fs::exists(folder.path() / "index.json") && fs::exists(folder.path() / "state.json"))
    throw UserError(fmt::format("{} has no COMMITTED: a checkpoint that was never completed, or "
                                "lost files",
                                folder.path().string()),
                    "give another checkpoint of its run");
  throw UserError(
      fmt::format("{} has config.json but no weights: neither model.safetensors nor "
                  "model.safetensors.index.json nor pytorch_model.bin",
                  folder.path().string()),
      "fetch the weights (hf download), or train them (`weft train` with model.init: random) and "
      "give the run directory or its final/");
}

LogicalModel open_folder(const fs::path& path) {
  const auto folder = std::make_shared<const HfFolder>(path);
  require_weights(*folder);
  const Json config = config_in_force(*folder);
  LogicalModel model = model_of(LogicalModel::Kind::kFolder, path);
  for (const auto& file : folder->files()) {
    model.unread.insert(file->unread().begin(), file->unread().end());
  }
  std::vector<LogicalTensor> tensors;
  for (const std::string& name : folder->tensor_names()) {
    if (model.unread.contains(name) || is_tied_copy(name, *folder, config)) continue;
    const HfFolder::Found found = folder->find(name);
    tensors.push_back(tensor_in_file(folder, *found.file, *found.info));
  }
  model.config = config;
  sort_tensors(std::move(tensors), model);
  return model;
}

LogicalModel open_checkpoint(const fs::path& path) {
  const auto reader = std::make_shared<const CheckpointReader>(path);
  reader->check_structure();  // slices are checked when they are read
  std::vector<LogicalTensor> tensors;
  for (const auto& [name, stored] : reader->tensors()) {
    tensors.push_back(tensor_in_checkpoint(reader, name, stored));
  }
  LogicalModel model = model_of(LogicalModel::Kind::kCheckpoint, path);
  if (const fs::path config = path / "config.json"; fs::exists(config)) {
    model.config = parse_json(read_file(config, size_t{1} << 26), config.string());
  }
  sort_tensors(std::move(tensors), model);
  return model;
}

}  // namespace

LogicalTensor tensor_in_memory(std::string name, Shape shape, Dtype dtype, const void* data) {
  auto read = [data, width = dtype_bytes(dtype)](int64_t begin, int64_t end, void* out) {
    if (begin < end) {
      std::memcpy(out, static_cast<const std::byte*>(data) + begin * width,
                  static_cast<size_t>((end - begin) * width));
    }
  };
  return {std::move(name), std::move(shape), dtype, std::move(read)};
}

size_t tensor_bytes(const LogicalTensor& t) {
  return static_cast<size_t>(num_elements(t.shape) * dtype_bytes(t.dtype));
}

fs::path resolve_model_source(const std::string& path) {
  if (!fs::is_directory(path)) return resolve_model_path(path);
  if (is_checkpoint(path) || fs::exists(fs::path(path) / "config.json")) return path;
  if (fs::is_directory(fs::path(path) / "checkpoints")) {
    const auto whole = list_checkpoints(path);
    if (whole.empty()) {
      throw UserError(fmt::format("{} has no complete checkpoint yet", path),
                      "wait for its first checkpoint, or give another folder");
    }
    return whole.back();
  }
  if (is_deepspeed(path) || is_dcp(path)) return path;
  throw UserError(
      fmt::format("{} holds no model: neither config.json nor COMMITTED nor checkpoints/", path),
      "give a checkpoint, a run directory, a Hugging Face folder, a file of tensors, or a folder "
      "of DeepSpeed or torch.distributed.checkpoint");
}

LogicalModel open_logical(const std::string& path) {
  if (fs::is_regular_file(path)) return open_file(path);
  const fs::path source = resolve_model_source(path);
  if (is_checkpoint(source)) return open_checkpoint(source);
  const bool has_weights = fs::exists(source / "config.json") && has_hf_weights(source);
  if (!has_weights && is_deepspeed(source)) return open_deepspeed(source);
  if (!has_weights && is_dcp(source)) return open_dcp(source);
  return open_folder(source);
}

void require_all_read(const LogicalModel& model) {
  if (model.unread.empty()) return;
  const auto& [name, reason] = *model.unread.begin();
  throw UserError(fmt::format("{}: tensor \"{}\" {}", model.path.string(), name, reason),
                  "convert or remove it in Python and save the rest again");
}

void drop_tied_copies(LogicalModel& model) {
  if (model.config.is_null()) return;
  const auto has = [&](const std::string& name) { return find_weight(model, name) != nullptr; };
  std::set<std::string> copies;
  for (const LogicalTensor& t : model.weights) {
    const LogicalTensor* original = find_weight(model, tied_embedding(t.name, model.config, has));
    if (!original) continue;
    if (same_bits(t, *original)) {
      copies.insert(t.name);
    } else if (t.name == traits_of(model.config).head) {
      untie_head(model.config);
    }
  }
  std::erase_if(model.weights, [&](const LogicalTensor& t) { return copies.contains(t.name); });
}

std::map<std::string, std::string> tied_names(const LogicalModel& model) {
  const auto has = [&](const std::string& name) { return find_weight(model, name) != nullptr; };
  const FamilyTraits& traits = traits_of(model.config);
  std::vector<std::string> repeated = traits.embedding_copies;
  repeated.push_back(traits.head);
  std::map<std::string, std::string> names;
  for (const std::string& name : repeated) {
    const std::string of = tied_embedding(name, model.config, has);
    if (!of.empty() && !has(name)) names[name] = of;
  }
  return names;
}

void use_config_of(LogicalModel& model, const fs::path& folder) {
  model.config = HfFolder(folder).config();
  model.config_folder = folder;
  if (model.kind == LogicalModel::Kind::kFile || model.kind == LogicalModel::Kind::kForeign)
    drop_tied_copies(model);
}

std::map<std::string, std::string> read_side_files(const LogicalModel& model) {
  static const std::set<std::string> kFolderFiles = {"generation_config.json",
                                                     "tokenizer.json",
                                                     "tokenizer_config.json",
                                                     "special_tokens_map.json",
                                                     "added_tokens.json",
                                                     "vocab.json",
                                                     "merges.txt",
                                                     "tokenizer.model",
                                                     "spiece.model",
                                                     "chat_template.jinja",
                                                     "chat_template.json"};
  std::map<std::string, std::string> files;
  if (model.config_folder.empty()) return files;
  const bool is_own = is_checkpoint(model.config_folder);
  for (const auto& entry : fs::directory_iterator(model.config_folder)) {
    const std::string name = entry.path().filename().string();
    const bool wanted =
        is_own ? !is_own_file(name) && name != "config.json" : kFolderFiles.contains(name);
    if (wanted && entry.is_regular_file()) files[name] = read_file(entry.path(), size_t{1} << 28);
  }
  return files;
}

}  // namespace weft
