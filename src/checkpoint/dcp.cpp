// checkpoint/dcp.cpp: torch.distributed.checkpoint: tensors from their chunks, names from their
// keys.
//
// The name of a weight is the last key that leads to it in the dict that was saved. Where that dict
// holds the model under a key of its own ({"model": ..., "optim": ...}; also "module",
// "state_dict"), only what lies below that key is the model, and the key is dropped; else every
// tensor is a weight under its whole name. Optimizer states are recognized by their keys:
// ...optim....state.NAME.exp_avg becomes NAME#m, exp_avg_sq NAME#v, momentum_buffer NAME#momentum.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/path.h"
#include "base/printable.h"
#include "checkpoint/foreign.h"
#include "checkpoint/index.h"
#include "checkpoint/join.h"
#include "checkpoint/torch_pieces.h"
#include "io/dcp_metadata.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxMetadataBytes = size_t{1} << 30;

std::string joined(const std::vector<std::string>& path) {
  std::string text;
  for (const std::string& key : path) text += (text.empty() ? "" : ".") + key;
  return text;
}

bool is_optimizer(const std::vector<std::string>& path) {
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    if (path[i].starts_with("optim")) return true;
  }
  return path.back().starts_with("state.") || path.back().starts_with("param_groups.");
}

bool is_below_model(const std::vector<std::string>& path) {
  static const std::set<std::string> kKeys = {"model", "module", "state_dict", "model_state_dict"};
  return path.size() > 1 && kKeys.contains(path[path.size() - 2]);
}

// NAME#m of optim.state.NAME.exp_avg; "" where it is no state that weft has, or numbered, not
// named.
std::string state_name(const std::vector<std::string>& path) {
  std::string text = "." + joined(path);
  const size_t state = text.find(".state.");
  if (state == std::string::npos) return "";
  text = text.substr(state + std::string_view(".state.").size());
  for (const auto& [key, suffix] : {std::pair(".exp_avg", "#m"), std::pair(".exp_avg_sq", "#v"),
                                    std::pair(".momentum_buffer", "#momentum")}) {
    if (!text.ends_with(key)) continue;
    text.resize(text.size() - std::string_view(key).size());
    const bool is_number = text.find_first_not_of("0123456789") == std::string::npos;
    return is_number ? "" : text + suffix;
  }
  return "";
}

class ChunkFiles {
 public:
  explicit ChunkFiles(fs::path folder) : folder_(std::move(folder)) {}
  size_t size() const { return maps_.size(); }

  TensorBox open(const std::string& name, const DcpTensor& tensor, const DcpChunk& chunk) {
    const auto map = mapped(chunk.file);
    const std::string what =
        fmt::format("{} at byte {}", (folder_ / chunk.file).string(), chunk.begin);
    if (chunk.end > map->size()) {
      throw UserError(
          fmt::format("{} has {} bytes, but \"{}\" ends at {}", (folder_ / chunk.file).string(),
                      map->size(), printable_line(name), chunk.end),
          "the file is truncated; copy the folder again");
    }
    const TorchArchive archive(map, chunk.begin, chunk.end, what);
    TorchPiece piece = whole_piece(archive, archive.root(), name);
    require(piece.tensor.shape == chunk.extent && piece.dtype() == tensor.dtype,
            "{}: holds {} {} of \"{}\", but .metadata says {} {}", what, dtype_name(piece.dtype()),
            to_string(piece.tensor.shape), printable_line(name), dtype_name(*tensor.dtype),
            to_string(chunk.extent));
    return {chunk.offset, chunk.extent,
            [piece = std::move(piece)](int64_t begin, int64_t end, void* out) {
              piece.read(begin, end, out);
            }};
  }

 private:
  std::shared_ptr<const MappedFile> mapped(const std::string& file) {
    auto& map = maps_[file];
    if (map) return map;
    if (path_kind(folder_ / file) != PathKind::kFile) {
      throw UserError(fmt::format("{} is missing; .metadata names it", (folder_ / file).string()),
                      "every rank has written one file; copy the whole folder");
    }
    return map = std::make_shared<const MappedFile>(folder_ / file);
  }

  fs::path folder_;
  std::map<std::string, std::shared_ptr<const MappedFile>> maps_;
};

// Every element once: the chunks as slices of a checkpoint of our own.
void require_covered(const std::string& name, const DcpTensor& t, const fs::path& folder) {
  StoredTensor stored{t.shape, *t.dtype, {}};
  for (const DcpChunk& c : t.chunks)
    stored.slices.push_back(
        {c.file, c.begin, c.end, {c.offset, c.extent, 0, num_elements(c.extent)}, 0});
  const std::string fault = coverage_fault({{name, stored}});
  require(fault.empty(), "{}: {}", folder.string(), fault);
}

}  // namespace

bool is_dcp(const fs::path& folder) { return path_kind(folder / ".metadata") == PathKind::kFile; }

LogicalModel open_dcp(const fs::path& folder) {
  const MappedFile metadata(folder / ".metadata");
  require(metadata.size() <= kMaxMetadataBytes, "{} has {} bytes, more than the {} we read",
          (folder / ".metadata").string(), metadata.size(), kMaxMetadataBytes);
  const auto tensors = parse_dcp_metadata(metadata.text(), (folder / ".metadata").string());
  const bool has_model = std::any_of(tensors.begin(), tensors.end(), [](const auto& t) {
    return !is_optimizer(t.second.path) && is_below_model(t.second.path);
  });
  LogicalModel model;
  model.kind = LogicalModel::Kind::kForeign;
  model.format = "torch.distributed.checkpoint folder";
  model.path = folder;
  ChunkFiles files(folder);
  size_t num_chunks = 0, num_left_out = 0;
  for (const auto& [flat_name, t] : tensors) {
    const bool is_state = is_optimizer(t.path);
    const std::string name = is_state    ? state_name(t.path)
                             : has_model ? (is_below_model(t.path) ? t.path.back() : "")
                                         : flat_name;
    if (name.empty()) {
      ++num_left_out;
      continue;
    }
    if (!t.dtype) {
      model.unread[name] = fmt::format("is of {}, which weft does not have", t.type);
      continue;
    }
    require_covered(name, t, folder);
    std::vector<TensorBox> boxes;
    for (const DcpChunk& chunk : t.chunks) boxes.push_back(files.open(name, t, chunk));
    num_chunks += boxes.size();
    (is_state ? model.states : model.weights)
        .push_back(join_boxes(name, t.shape, *t.dtype, std::move(boxes)));
  }
  model.details.set("files", uint64_t{files.size()});
  model.details.set("chunks", uint64_t{num_chunks});
  if (num_left_out > 0)
    model.notes.push_back(
        fmt::format("{} tensors are neither weights nor an optimizer's moments by name; not listed",
                    num_left_out));
  find_config(model, config_folders(folder));
  finish_foreign(model);
  return model;
}

}  // namespace weft
