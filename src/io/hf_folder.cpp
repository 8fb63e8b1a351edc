// io/hf_folder.cpp: config.json, and the tensors of one file or of the shards an index names.
#include "io/hf_folder.h"

#include "base/error.h"
#include "base/path.h"
#include "io/torch_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kGeneration = "generation_config.json";
constexpr const char* kTorchSingle = "pytorch_model.bin";
constexpr const char* kTorchIndex = "pytorch_model.bin.index.json";

std::optional<ForeignWeights> foreign_weights;

// A shard's name comes from an untrusted file: it must not lead out of the folder.
bool plain_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

// Only the user can repair a link that leads back to itself.
bool is_there(const fs::path& path) {
  std::error_code bad;
  const bool found = fs::exists(path, bad);
  if (bad == std::errc::too_many_symbolic_link_levels) {
    throw UserError(fmt::format("{} is a symbolic link that leads back to itself", path.string()),
                    "remove the link, and copy or link the file itself");
  }
  if (bad) throw_refused("access", path, bad.value());
  return found;
}

// transformers begins an answer with generation_config.json's token; config.json may then lack it.
void add_decoder_start(const fs::path& file, Json* config) {
  const char* key = "decoder_start_token_id";
  const auto is_token = [](const Json* id) { return id && id->is_int() && id->as_int() >= 0; };
  const Json* reads_source = config->find("is_encoder_decoder");
  if (!reads_source || *reads_source != Json(true) || is_token(config->find(key))) return;
  if (!is_there(file)) return;
  const Json generation = parse_json(read_file(file, size_t{1} << 26), file.string());
  require(generation.is_object(), "{} holds {}, wanted an object", file.string(),
          generation.kind());
  if (const Json* id = generation.find(key); is_token(id)) config->set(key, *id);
}

}  // namespace

bool has_hf_weights(const fs::path& folder) {
  return is_there(folder / kSingle) || is_there(folder / kIndex) ||
         is_there(folder / kTorchSingle) || is_there(folder / kTorchIndex);
}

HfFolder::HfFolder(const fs::path& path) : path_(path) {
  if (!fs::is_directory(path)) {
    throw UserError(fmt::format("{} is not a folder", path.string()),
                    "wanted a Hugging Face folder: config.json, *.safetensors, tokenizer files");
  }
  if (foreign_weights && !has_hf_weights(path)) {
    if (const auto folder = foreign_weights->find_config(path)) {
      foreign_ = path;
      path_ = *folder;
    }
  }
  const fs::path file = path_ / "config.json";
  if (!is_there(file)) {
    const bool is_foreign = is_there(path / "latest") || is_there(path / ".metadata");
    throw UserError(fmt::format("{} has no config.json", path.string()),
                    is_foreign
                        ? "it looks like a checkpoint of DeepSpeed or torch.distributed: `weft "
                          "export FOLDER OUT --config FOLDER` makes a model folder of it"
                        : "wanted a Hugging Face folder: config.json, *.safetensors, tokenizer "
                          "files");
  }
  config_ = parse_json(read_file(file, size_t{1} << 26), file.string());
  require(config_.is_object(), "{} holds {}, wanted an object", file.string(), config_.kind());
  add_decoder_start(path_ / kGeneration, &config_);
}

const TensorFile& HfFolder::open_file(const fs::path& file) const {
  if (file.extension() == ".safetensors") {
    files_.push_back(std::make_unique<SafetensorsFile>(file));
  } else {
    files_.push_back(std::make_unique<TorchFile>(file));
  }
  return *files_.back();
}

void HfFolder::open_shards(const std::string& index_name) const {
  const fs::path file = path_ / index_name;
  const Json index = parse_json(read_file(file, size_t{1} << 28), file.string());
  const Json* map = index.find("weight_map");
  require(map && map->is_object(), "{} has no object weight_map", file.string());
  std::map<std::string, size_t> shards;  // file name to place in files_
  for (const auto& [tensor, shard_json] : map->as_object()) {
    require(shard_json.is_string(), "{}: tensor \"{}\" names no file", file.string(), tensor);
    const std::string& shard = shard_json.as_string();
    require(plain_name(shard), "{}: tensor \"{}\" is in \"{}\", wanted a file in this folder",
            file.string(), tensor, shard);
    if (!shards.contains(shard)) {
      if (!is_there(path_ / shard)) {
        throw UserError(fmt::format("{} is missing; {} names it for tensor \"{}\"",
                                    (path_ / shard).string(), index_name, tensor),
                        "the download may be incomplete; fetch that file again");
      }
      open_file(path_ / shard);
      shards[shard] = files_.size() - 1;
    }
    const size_t at = shards[shard];
    require(files_[at]->find(tensor) != nullptr || files_[at]->unread().contains(tensor),
            "{} has no tensor \"{}\", which {} lists there", (path_ / shard).string(), tensor,
            index_name);
    where_[tensor] = at;
  }
}

bool HfFolder::has_weights() const { return foreign_ || has_hf_weights(path_); }

void HfFolder::open_weights() const {
  if (open_) return;
  files_.clear();
  where_.clear();
  const auto list_single = [&] {
    for (const TensorInfo& t : files_[0]->tensors()) where_[t.name] = 0;
    for (const auto& [tensor, reason] : files_[0]->unread()) where_[tensor] = 0;
  };
  const auto open_single = [&](const char* name) {
    open_file(path_ / name);
    list_single();
  };
  if (foreign_) {
    files_.push_back(foreign_weights->open(*foreign_));
    list_single();
  } else if (is_there(path_ / kSingle)) {
    open_single(kSingle);
  } else if (is_there(path_ / kIndex)) {
    open_shards(kIndex);
  } else if (is_there(path_ / kTorchSingle)) {
    open_single(kTorchSingle);
  } else if (is_there(path_ / kTorchIndex)) {
    open_shards(kTorchIndex);
  } else {
    throw UserError(fmt::format("{} has config.json but no weights: neither {} nor {} nor {}",
                                path_.string(), kSingle, kIndex, kTorchSingle),
                    "fetch the weights (hf download), or set model.init: random to train from the "
                    "configuration");
  }
  open_ = true;
}

void set_foreign_weights(const ForeignWeights& foreign) { foreign_weights = foreign; }

HfFolder::Found HfFolder::find(const std::string& name) const {
  open_weights();
  const auto found = where_.find(name);
  if (found == where_.end()) return {nullptr, nullptr};
  const TensorFile& file = *files_[found->second];
  if (const auto unread = file.unread().find(name); unread != file.unread().end()) {
    throw UserError(fmt::format("{}: tensor \"{}\" {}", file.path().string(), name, unread->second),
                    "convert the tensor in Python and save it again");
  }
  return {&file, file.find(name)};
}

const HfFolder::Files& HfFolder::files() const {
  open_weights();
  return files_;
}

std::vector<std::string> HfFolder::tensor_names() const {
  open_weights();
  std::vector<std::string> names;
  for (const auto& [name, at] : where_) names.push_back(name);
  return names;
}

std::map<std::string, std::string> HfFolder::side_files() const {
  std::map<std::string, std::string> files;
  const fs::path file = path_ / kGeneration;
  if (is_there(file)) files[kGeneration] = read_file(file, size_t{1} << 26);
  return files;
}

}  // namespace weft
