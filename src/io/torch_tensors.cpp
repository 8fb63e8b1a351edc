// io/torch_tensors.cpp: the tensors of a state dict by name, and as a file of tensors.
#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "io/torch_file.h"
#include "io/zip_file.h"

namespace weft {
namespace {

using Named = std::map<std::string, TorchTensor>;

void collect(const TorchArchive& archive, const PickleValue& value, const std::string& name,
             Named& out) {
  const auto below = [&](const std::string& key) { return name.empty() ? key : name + "." + key; };
  if (TorchArchive::is_tensor(value)) {
    require(out.emplace(name, archive.tensor(value)).second, "two tensors are named \"{}\"",
            printable_line(name));
  } else if (value.is_dict()) {
    for (size_t i = 0; i < value.num_entries(); ++i) {
      const PickleValue key = value.key(i);
      if (key.is_string())
        collect(archive, value.value(i), below(std::string(key.as_string())), out);
      if (key.kind() == Pickle::Kind::kInt)
        collect(archive, value.value(i), below(std::to_string(key.as_int())), out);
    }
  } else if (value.is_list()) {
    for (size_t i = 0; i < value.size(); ++i)
      collect(archive, value[i], below(std::to_string(i)), out);
  }
}

}  // namespace

bool is_torch_file(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path)) return false;
  const MappedFile map(path);
  if (!is_zip(map.text())) return false;
  try {
    const std::vector<ZipMember> members = parse_zip(map.text(), path.string());
    return std::any_of(members.begin(), members.end(),
                       [](const ZipMember& m) { return m.name.ends_with("/data.pkl"); });
  } catch (const UserError&) {  // another archive, or a damaged one
    return false;
  }
}

Named named_tensors(const TorchArchive& archive, const PickleValue& value) {
  Named out;
  collect(archive, value, "", out);
  return out;
}

TorchFile::TorchFile(const std::filesystem::path& path)
    : TensorFile(path),
      map_(std::make_shared<const MappedFile>(path)),
      archive_(map_, 0, map_->size(), path.string()) {
  std::vector<TensorInfo> infos;
  for (auto& [name, t] : named_tensors(archive_, archive_.root())) {
    if (!t.fault.empty()) {
      unread_[name] = t.fault;
      continue;
    }
    infos.push_back({name, t.dtype, t.shape, t.begin, t.begin + *checked_bytes(t.shape, t.dtype)});
    views_.push_back(t);
  }
  set_tensors(std::move(infos));
}

const TorchTensor& TorchFile::tensor_of(const TensorInfo& info) const {
  const ptrdiff_t at = &info - tensors().data();
  ensure(at >= 0 && at < static_cast<ptrdiff_t>(views_.size()), "a tensor of another file");
  return views_[static_cast<size_t>(at)];
}

const std::byte* TorchFile::data(const TensorInfo& info) const {
  const TorchTensor& t = tensor_of(info);
  // torch.save aligns its storages; another program need not.
  const bool is_aligned = t.begin % static_cast<size_t>(dtype_bytes(t.dtype)) == 0;
  if (t.is_contiguous() && is_aligned) return archive_.data(t);
  const std::lock_guard lock(mutex_);
  std::vector<std::byte>& copy = copies_[&t];
  if (copy.empty()) {
    copy.resize(info.end - info.begin);
    archive_.read(t, 0, num_elements(t.shape), copy.data());
  }
  return copy.data();
}

void TorchFile::read(const TensorInfo& info, int64_t begin, int64_t end, void* out) const {
  archive_.read(tensor_of(info), begin, end, out);
}

}  // namespace weft
