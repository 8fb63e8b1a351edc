// checkpoint/logical.h: the logical tensors of a model in any storage: a checkpoint of any layout,
// a run directory, a Hugging Face folder, one file of safetensors or of torch.save, and what other
// programs write (checkpoint/foreign.h).
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace weft {

struct LogicalTensor {
  std::string name;
  Shape shape;
  Dtype dtype;
  // Reads elements [begin, end) in row-major order; keeps its source alive.
  std::function<void(int64_t begin, int64_t end, void* out)> read;
};
LogicalTensor tensor_in_memory(std::string name, Shape shape, Dtype dtype, const void* data);
size_t tensor_bytes(const LogicalTensor& tensor);

// Elements that are read, compared or converted at a time.
inline constexpr int64_t kPieceElements = int64_t{1} << 20;

struct LogicalModel {
  enum class Kind { kCheckpoint, kFolder, kFile, kForeign };
  Kind kind = Kind::kFile;
  std::string format;                  // of kFile and kForeign, in words
  std::filesystem::path path;          // what was opened: for a run directory, its checkpoint
  std::vector<LogicalTensor> weights;  // by name; a master copy (name#master) appears as name; a
                                       // tied tensor once
  std::vector<LogicalTensor> states;   // by name: name#m, name#v
  std::map<std::string, std::string> unread;  // tensors that cannot be read, with the reason
  Json config;                                // config.json; null where there is none
  std::filesystem::path config_folder;        // where it is, with the tokenizer; may be empty
  Json details = Json(Json::Object{});        // of kForeign: step, ranks, version
  std::vector<std::string> notes;             // what a reader of the listing should know
};

// UserError listing what is accepted where it is none of them. Hub names are looked up.
LogicalModel open_logical(const std::string& path);
// The folder itself; for a run directory its newest complete checkpoint; for a hub name its cache
// folder.
std::filesystem::path resolve_model_source(const std::string& path);

// UserError naming the first tensor that cannot be read: a copy without it would be another model.
void require_all_read(const LogicalModel& model);

// Drops weights that are the embedding once more, where config.json ties them: same bits only.
void drop_tied_copies(LogicalModel& model);

// The names under which transformers' state_dict() has a weight once more, and that weight's name:
// a tied head, T5's embeddings of encoder and decoder.
std::map<std::string, std::string> tied_names(const LogicalModel& model);

// Takes config.json and the tokenizer from a folder, replacing what the model came with.
void use_config_of(LogicalModel& model, const std::filesystem::path& folder);

// The files that a copy of the model keeps: generation configuration, tokenizer files.
std::map<std::string, std::string> read_side_files(const LogicalModel& model);

}  // namespace weft
