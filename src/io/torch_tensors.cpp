// io/torch_tensors.cpp: the tensors of a state dict by name, and as a file of tensors.
#include <algorithm>

#include "base/error.h"
#include "base/mapped_files.h"
#include "base/printable.h"
#include "io/torch_file.h"
#include "io/zip_file.h"

namespace weft {
namespace {

using Named = std::map<std::string, TorchTensor>;

// A pickle of some megabytes may refer to the same dict again and again: what it unfolds to is
// bounded. Larger than the largest models by far.
constexpr size_t kMaxTensors = size_t{1} << 20;
constexpr size_t kMaxNameBytes = size_t{1} << 26;

bool is_wrapper(const std::string& call) {
  return call == "torch._utils._rebuild_parameter" ||
         call == "torch._utils._rebuild_parameter_with_state";
}

// The call of torch that makes a tensor of a kind that is not read, below those that wrap it; ""
// for what is no tensor.
std::string other_tensor(const PickleValue& value) {
  if (value.kind() != Pickle::Kind::kObject) return "";
  const std::string name = value.class_name();
  if (!name.starts_with("torch.") || name == "torch.Size" || name == "torch.device") return "";
  const PickleValue arguments = value.arguments();
  std::string inner;
  if (is_wrapper(name) && arguments.size() > 0) inner = other_tensor(arguments[0]);
  if (name == "torch._tensor._rebuild_from_type_v2" && arguments.size() > 0)
    inner = arguments[0].class_name();
  return inner.empty() ? name : inner;
}

class Collector {
 public:
  explicit Collector(const TorchArchive& archive) : archive_(archive) {}

  void walk(const PickleValue& value, const std::string& name) {
    if (value.is_dict()) {
      for (size_t i = 0; i < value.num_entries(); ++i) {
        const PickleValue key = value.key(i), below = value.value(i);
        if (!may_hold_tensors(below)) continue;
        if (key.is_string()) walk(below, joined(name, key.as_string()));
        if (key.is_int()) walk(below, joined(name, std::to_string(key.as_int())));
      }
    } else if (value.is_list()) {
      for (size_t i = 0; i < value.size(); ++i) {
        if (may_hold_tensors(value[i])) walk(value[i], joined(name, std::to_string(i)));
      }
    } else if (TorchArchive::is_tensor(value)) {
      add(name, archive_.tensor(value));
    } else if (const std::string call = other_tensor(value); !call.empty()) {
      TorchTensor tensor;
      tensor.fault = fmt::format("is made by {}, which is not read", printable_line(call));
      add(name, std::move(tensor));
    }
  }
  Named take() { return std::move(out_); }

 private:
  static bool may_hold_tensors(const PickleValue& value) {
    return value.is_dict() || value.is_list() || value.kind() == Pickle::Kind::kObject;
  }
  void add(const std::string& name, TorchTensor tensor) {
    require(out_.size() < kMaxTensors, "{}: has more than {} tensors", archive_.what(),
            kMaxTensors);
    require(out_.emplace(name, std::move(tensor)).second, "{}: two tensors are named \"{}\"",
            archive_.what(), printable_line(name));
  }
  std::string joined(const std::string& name, std::string_view key) {
    std::string path = name.empty() ? std::string(key) : fmt::format("{}.{}", name, key);
    name_bytes_ += path.size();
    require(name_bytes_ <= kMaxNameBytes, "{}: its names have more than {} bytes", archive_.what(),
            kMaxNameBytes);
    return path;
  }

  const TorchArchive& archive_;
  Named out_;
  size_t name_bytes_ = 0;
};

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

CheckedBytes verify_torch_file(const std::filesystem::path& path) {
  const MappedFile map(path);
  require_torch_zip(map.text(), path.string());
  CheckedBytes bytes;
  for (const ZipMember& m : parse_zip(map.text(), path.string())) {
    check_member(map.text(), m, path.string());
    (m.checksum == 0 ? bytes.without_checksum : bytes.checked) += m.end - m.begin;
  }
  check_mapped_files();
  return bytes;
}

Named named_tensors(const TorchArchive& archive, const PickleValue& value) {
  Collector collector(archive);
  collector.walk(value, "");
  return collector.take();
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
