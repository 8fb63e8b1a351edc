// checkpoint/model_files.cpp: a logical model as a file of tensors.
#include "checkpoint/model_files.h"

#include <map>
#include <mutex>

#include "base/error.h"
#include "checkpoint/foreign.h"
#include "io/hf_folder.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class ForeignFile final : public TensorFile {
 public:
  explicit ForeignFile(const fs::path& folder)
      : TensorFile(folder), model_(open_logical(folder.string())) {
    unread_ = model_.unread;
    std::vector<TensorInfo> infos;
    for (const LogicalTensor& t : model_.weights)
      infos.push_back({t.name, t.dtype, t.shape, 0, tensor_bytes(t)});
    set_tensors(std::move(infos));
  }
  bool is_mapped() const override { return false; }
  void read(const TensorInfo& info, int64_t begin, int64_t end, void* out) const override {
    tensor_of(info).read(begin, end, out);
  }
  // A copy, kept until the pages are dropped.
  const std::byte* data(const TensorInfo& info) const override {
    const std::scoped_lock lock(mutex_);
    auto& copy = copies_[&info];
    if (copy.empty()) {
      copy.resize(info.end);
      read(info, 0, num_elements(info.shape), copy.data());
    }
    return copy.data();
  }
  void drop_pages() const override {
    const std::scoped_lock lock(mutex_);
    copies_.clear();
  }

 private:
  const LogicalTensor& tensor_of(const TensorInfo& info) const {
    return model_.weights[static_cast<size_t>(&info - tensors().data())];
  }
  LogicalModel model_;
  mutable std::mutex mutex_;
  mutable std::map<const TensorInfo*, std::vector<std::byte>> copies_;
};

std::optional<fs::path> find_config_folder(const fs::path& folder) {
  if (!is_deepspeed(folder) && !is_dcp(folder)) return std::nullopt;
  const std::vector<fs::path> places = config_folders(folder);
  for (const fs::path& place : places) {
    if (fs::exists(place / "config.json")) return place;
  }
  std::string list;
  for (const fs::path& place : places) list += (list.empty() ? "" : " nor ") + place.string();
  throw UserError(
      fmt::format("{} is a checkpoint of {}, but neither {} has config.json", folder.string(),
                  is_dcp(folder) ? "torch.distributed" : "DeepSpeed", list),
      "put the model's config.json and tokenizer files there, or make a model folder of it: `weft "
      "export FOLDER OUT --config MODEL`");
}

std::unique_ptr<const TensorFile> open_foreign(const fs::path& folder) {
  return std::make_unique<const ForeignFile>(folder);
}

}  // namespace

void read_models_of_others() { set_foreign_weights({find_config_folder, open_foreign}); }

}  // namespace weft
