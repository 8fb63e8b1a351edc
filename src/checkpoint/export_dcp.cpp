// checkpoint/export_dcp.cpp: archives of torch.save one after the other, and .metadata, which says
// where each is.
#include <algorithm>

#include "base/error.h"
#include "base/path.h"
#include "checkpoint/export_folder.h"
#include "checkpoint/export_torch.h"
#include "checkpoint/replace_folder.h"
#include "checkpoint/torch_groups.h"
#include "io/dcp_metadata.h"
#include "io/torch_writer.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using Path = std::vector<std::string>;

// A rank that loads its shard reads each archive that it needs whole.
constexpr size_t kMaxChunkBytes = size_t{256} << 20;

std::string flat_name(const Path& path) {
  std::string text;
  for (const std::string& key : path) text += (text.empty() ? "" : ".") + key;
  return text;
}

class DcpExport {
 public:
  DcpExport(fs::path folder, const ExportOptions& options)
      : folder_(std::move(folder)), max_file_bytes_(options.max_shard_bytes) {}

  void add_tensor(const Path& path, const LogicalTensor& t, Dtype dtype) {
    DcpTensor entry{path, t.shape, dtype, "", {}};
    const int64_t rows = t.shape.empty() ? 1 : t.shape[0];
    const int64_t row = rows > 0 ? num_elements(t.shape) / rows : 0;
    const size_t most = std::min(kMaxChunkBytes, max_file_bytes_);
    const auto row_bytes = static_cast<size_t>(std::max<int64_t>(row * dtype_bytes(dtype), 1));
    const auto step = static_cast<int64_t>(std::max<size_t>(most / row_bytes, 1));
    int64_t at = 0;
    do {
      const int64_t count = std::min(step, rows - at);
      DcpChunk chunk{Shape(t.shape.size(), 0), t.shape, "", 0, 0};
      if (!t.shape.empty()) chunk.offset[0] = at, chunk.extent[0] = count;
      PickleWriter pickle;
      pickle_tensor(pickle, 0, dtype, chunk.extent);
      const auto bytes = static_cast<uint64_t>(count * row * dtype_bytes(dtype));
      write_archive(pickle, bytes, chunk, [&](TorchWriter& out) {
        stream_elements(t, dtype, at * row, (at + count) * row,
                        [&](const void* from, size_t size) { out.write(from, size); });
      });
      entry.chunks.push_back(std::move(chunk));
      at += count;
    } while (at < rows);
    tensors_[flat_name(path)] = std::move(entry);
  }

  // The same bytes under another name.
  void add_alias(const Path& path, const Path& of) {
    DcpTensor entry = tensors_.at(flat_name(of));
    entry.path = path;
    tensors_[flat_name(path)] = std::move(entry);
  }

  void add_value(const Path& path, const PickleWriter& pickle) {
    DcpChunk chunk;
    write_archive(pickle, std::nullopt, chunk, [](TorchWriter&) {});
    values_[flat_name(path)] = {path, chunk.file, chunk.begin, chunk.end};
  }

  void finish() {
    if (out_) out_->sync();
    write_synced(folder_ / ".metadata", pickle_dcp_metadata(tensors_, values_));
  }

 private:
  // Sets the chunk's place. The next file is begun where this one would be too large.
  template <typename Write>
  void write_archive(const PickleWriter& pickle, std::optional<uint64_t> storage, DcpChunk& chunk,
                     const Write& write) {
    if (!out_ || (at_ > 0 && at_ + storage.value_or(0) > max_file_bytes_)) next_file();
    out_->write(std::string((64 - at_ % 64) % 64, '\0'));
    at_ += (64 - at_ % 64) % 64;
    std::vector<uint64_t> storages;
    if (storage) storages.push_back(*storage);
    TorchWriter torch(&*out_, pickle.finish(), storages);
    write(torch);
    chunk.file = file_;
    chunk.begin = at_;
    at_ += static_cast<size_t>(torch.finish());
    chunk.end = at_;
  }

  void next_file() {
    if (out_) out_->sync();
    file_ = fmt::format("__0_{}.distcp", num_files_++);
    out_.reset();
    out_.emplace(folder_ / file_, FileWriter::Mode::kTruncate);
    at_ = 0;
  }

  fs::path folder_;
  size_t max_file_bytes_;
  std::optional<FileWriter> out_;
  std::string file_;
  size_t num_files_ = 0, at_ = 0;  // at_: bytes of the file
  std::map<std::string, DcpTensor> tensors_;
  std::map<std::string, DcpValue> values_;
};

PickleWriter pickled(const AppendValue& append) {
  PickleWriter out;
  append(out);
  return out;
}

// Every key that torch's optimizer has: a loader requires all that its own one has.
void add_group(DcpExport& dcp, const TorchOptimizer& o, const ParamGroup& group, size_t i) {
  const auto add = [&](const std::string& key, const AppendValue& append) {
    dcp.add_value({"optim", "param_groups", std::to_string(i), key}, pickled(append));
  };
  const auto no = [](PickleWriter& out) { out.boolean(false); };
  const auto none = [](PickleWriter& out) { out.none(); };
  for (const auto& [key, append] : hyperparameters(o, group)) add(key, append);
  // A scheduler of torch adds it; without one it is not read.
  add("initial_lr", [&](PickleWriter& out) { out.real(o.initial_lr); });
  for (const char* key : {"maximize", "differentiable"}) add(key, no);
  for (const char* key : {"foreach", "fused"}) add(key, none);
  if (has_moments(o)) {
    for (const char* key : {"amsgrad", "capturable"}) add(key, no);
    add("decoupled_weight_decay", [](PickleWriter& out) { out.boolean(true); });
  }
  add("params", [&](PickleWriter& out) {
    out.list([&] {
      for (const std::string& name : group.names) out.text(name);
    });
  });
}

void add_optimizer(DcpExport& dcp, const LogicalModel& model, const TorchOptimizer& o) {
  const auto step = static_cast<float>(o.step);
  const LogicalTensor steps = tensor_in_memory("step", {}, Dtype::kF32, &step);
  const std::vector<ParamGroup> groups = param_groups(model, o);
  for (size_t i = 0; i < groups.size(); ++i) {
    add_group(dcp, o, groups[i], i);
    for (const std::string& name : groups[i].names) {
      for (const auto& [key, t] : states_of(model, name))
        dcp.add_tensor({"optim", "state", name, key}, *t, t->dtype);
      if (has_moments(o)) dcp.add_tensor({"optim", "state", name, "step"}, steps, Dtype::kF32);
    }
  }
  dcp.add_value({"step"}, pickled([&](PickleWriter& out) { out.integer(o.step); }));
}

}  // namespace

// Of one rank: what several ranks have saved is never taken for an export.
bool is_dcp_export(const fs::path& folder) {
  if (path_kind(folder / ".metadata") != PathKind::kFile) return false;
  const std::vector<std::string> names = folder_names(folder);
  return std::all_of(names.begin(), names.end(), [](const std::string& name) {
    return !name.ends_with(".distcp") || name.starts_with("__0_");
  });
}

void export_dcp(const LogicalModel& model, const std::optional<TorchOptimizer>& optimizer,
                const fs::path& out, const ExportOptions& options) {
  write_export(out, options, is_dcp_export, [&](const fs::path& folder) {
    DcpExport dcp(folder, options);
    for (const LogicalTensor& t : model.weights)
      dcp.add_tensor({"model", t.name}, t, exported_dtype(t, options));
    for (const auto& [name, of] : tied_names(model)) dcp.add_alias({"model", name}, {"model", of});
    if (optimizer) add_optimizer(dcp, model, *optimizer);
    dcp.finish();
    write_config_files(folder, model.weights, model.config, read_side_files(model), options);
  });
}

}  // namespace weft
