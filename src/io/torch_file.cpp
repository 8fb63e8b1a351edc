// io/torch_file.cpp: tensors as (storage, offset, shape, strides), checked before they are read.
#include "io/torch_file.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/mapped_files.h"
#include "base/printable.h"
#include "io/zip_file.h"

namespace weft {
namespace {

constexpr size_t kMaxPickleBytes = size_t{1} << 30;
constexpr size_t kMaxDims = 64;  // torch's own operations take no more
constexpr const char* kSaveAgain =
    "load it in Python and save it again with a current torch.save, or as safetensors";

struct TypeName {
  const char *storage, *type;
  Dtype dtype;
};
constexpr TypeName kTypes[] = {
    {"torch.FloatStorage", "torch.float32", Dtype::kF32},
    {"torch.BFloat16Storage", "torch.bfloat16", Dtype::kBf16},
    {"torch.HalfStorage", "torch.float16", Dtype::kF16},
    {"torch.DoubleStorage", "torch.float64", Dtype::kF64},
    {"torch.LongStorage", "torch.int64", Dtype::kI64},
    {"torch.IntStorage", "torch.int32", Dtype::kI32},
    {"torch.ShortStorage", "torch.int16", Dtype::kI16},
    {"torch.CharStorage", "torch.int8", Dtype::kI8},
    {"torch.ByteStorage", "torch.uint8", Dtype::kU8},
    {"torch.BoolStorage", "torch.bool", Dtype::kBool},
};

std::optional<Dtype> find_storage_dtype(const std::string& name) {
  for (const TypeName& t : kTypes) {
    if (name == t.storage) return t.dtype;
  }
  return std::nullopt;
}

// The call that makes a plain tensor, below those that wrap it: name and arguments.
struct Rebuild {
  std::string name;
  PickleValue arguments;
};
std::optional<Rebuild> find_rebuild(PickleValue value) {
  constexpr std::string_view kPlain[] = {"torch._utils._rebuild_tensor",
                                         "torch._utils._rebuild_tensor_v2",
                                         "torch._utils._rebuild_tensor_v3"};
  if (value.kind() != Pickle::Kind::kObject) return std::nullopt;
  std::string name = value.class_name();
  PickleValue arguments = value.arguments();
  if (name == "torch._utils._rebuild_parameter" ||
      name == "torch._utils._rebuild_parameter_with_state") {
    return arguments.size() > 0 ? find_rebuild(arguments[0]) : std::nullopt;
  }
  if (name == "torch._tensor._rebuild_from_type_v2") {  // function, class, arguments, state
    if (arguments.size() < 3 || !arguments[2].is_list()) return std::nullopt;
    name = arguments[0].class_name();
    arguments = arguments[2];
    if (name == "torch._utils._rebuild_parameter") {
      return arguments.size() > 0 ? find_rebuild(arguments[0]) : std::nullopt;
    }
  }
  if (std::find(std::begin(kPlain), std::end(kPlain), name) == std::end(kPlain))
    return std::nullopt;
  return Rebuild{std::move(name), arguments};
}

const TypeName& type_name(Dtype dtype) {
  for (const TypeName& t : kTypes) {
    if (dtype == t.dtype) return t;
  }
  throw BugError(fmt::format("torch has no {}", dtype_name(dtype)));
}

// One more than the largest element of the storage that the view touches; none on overflow.
std::optional<int64_t> view_end(const TorchTensor& t, int64_t offset) {
  int64_t last = offset;
  for (size_t i = 0; i < t.shape.size(); ++i) {
    int64_t step = 0;
    if (__builtin_mul_overflow(t.shape[i] - 1, t.strides[i], &step) ||
        __builtin_add_overflow(last, step, &last))
      return std::nullopt;
  }
  return __builtin_add_overflow(last, 1, &last) ? std::nullopt : std::optional(last);
}

template <size_t kWidth>
void copy_strided(const std::byte* from, int64_t stride, int64_t count, std::byte* to) {
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * static_cast<int64_t>(kWidth),
                from + i * stride * static_cast<int64_t>(kWidth), kWidth);
}

// Elements [begin, end) in row-major order: runs along the last dimension.
void read_strided(const TorchTensor& t, const std::byte* first, int64_t begin, int64_t end,
                  std::byte* out) {
  const int64_t width = dtype_bytes(t.dtype);
  const int64_t row = t.shape.empty() ? 1 : t.shape.back();
  const int64_t step = t.strides.empty() ? 1 : t.strides.back();
  while (begin < end) {
    const int64_t column = begin % row, count = std::min(end - begin, row - column);
    int64_t at = column * step, rest = begin / row;
    for (size_t i = t.shape.size(); i-- > 1;) {
      at += rest % t.shape[i - 1] * t.strides[i - 1];
      rest /= t.shape[i - 1];
    }
    const std::byte* from = first + at * width;
    if (width == 1) copy_strided<1>(from, step, count, out);
    if (width == 2) copy_strided<2>(from, step, count, out);
    if (width == 4) copy_strided<4>(from, step, count, out);
    if (width == 8) copy_strided<8>(from, step, count, out);
    out += count * width;
    begin += count;
  }
}

}  // namespace

bool TorchTensor::is_contiguous() const {
  const Shape wanted = row_major_strides(shape);
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] > 1 && strides[i] != wanted[i]) return false;
  }
  return true;
}

std::optional<Dtype> find_torch_dtype(std::string_view name) {
  for (const TypeName& t : kTypes) {
    if (name == t.type) return t.dtype;
  }
  return std::nullopt;
}

const char* torch_dtype_name(Dtype dtype) { return type_name(dtype).type; }
const char* torch_storage_name(Dtype dtype) { return type_name(dtype).storage; }

Shape row_major_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<int64_t>(shape[i], 1);
  return strides;
}

Shape shape_of(const PickleValue& value) {
  PickleValue list = value;
  if (value.is_object("torch.Size")) list = value.arguments()[0];
  Shape shape;
  for (size_t i = 0; i < list.size(); ++i) {
    shape.push_back(list[i].as_int());
    require(shape.back() >= 0, "a shape or stride has {}, wanted no negative number", shape.back());
  }
  return shape;
}

void require_torch_zip(std::string_view file, const std::string& what) {
  if (is_zip(file)) return;
  // A pickled LONG1 of ten bytes is torch's mark of its older format.
  const bool is_pickle = file.starts_with("\x80\x02\x8a\x0a");
  const bool is_tar = file.size() > 262 && file.substr(257, 5) == "ustar";
  if (is_pickle || is_tar) {
    throw UserError(fmt::format("{} is in torch's older format (before 1.6, or without "
                                "_use_new_zipfile_serialization), which is not read",
                                what),
                    kSaveAgain);
  }
  throw UserError(fmt::format("{} is not a zip archive, as torch.save writes it", what),
                  "the file may be a pointer of git-lfs, truncated, or of another kind");
}

TorchArchive::TorchArchive(std::string_view archive, std::string_view what)
    : archive_(archive), what_(what) {
  open();
}

TorchArchive::TorchArchive(std::shared_ptr<const MappedFile> map, size_t begin, size_t end,
                           std::string_view what)
    : map_(std::move(map)),
      map_begin_(begin),
      archive_(map_->text().substr(begin, end - begin)),
      what_(what) {
  open();
}

void TorchArchive::open() {
  require_torch_zip(archive_, what_);
  const std::vector<ZipMember> members = parse_zip(archive_, what_);
  for (const ZipMember& m : members) {
    constexpr std::string_view kPickle = "/data.pkl";
    if (m.name.ends_with(kPickle) && m.name.find('/') == m.name.size() - kPickle.size()) {
      require(root_.empty(), "{} holds two pickles", what_);
      root_ = m.name.substr(0, m.name.size() - kPickle.size() + 1);
    }
    members_.emplace(m.name, Range{m.begin, m.end});
  }
  require(!root_.empty(), "{} is a zip archive, but not of torch.save: it has no data.pkl", what_);
  if (members_.contains(root_ + "constants.pkl")) {
    throw UserError(fmt::format("{} is a TorchScript program, wanted a state dict", what_),
                    "save model.state_dict() instead of the model");
  }
  // What is read here. A storage would have to be read whole for a part of it.
  for (const ZipMember& m : members) {
    if (m.name == root_ + "data.pkl" || m.name == root_ + "byteorder")
      check_member(archive_, m, what_);
  }
  if (const auto order = members_.find(root_ + "byteorder"); order != members_.end()) {
    const auto [begin, end] = order->second;
    require(archive_.substr(begin, end - begin) == "little",
            "{} was written on a big-endian machine; {}", what_, kSaveAgain);
  }
  const auto [begin, end] = members_.at(root_ + "data.pkl");
  require(end - begin <= kMaxPickleBytes, "{}: data.pkl has {} bytes, more than the {} we read",
          what_, end - begin, kMaxPickleBytes);
  pickle_ = std::make_unique<Pickle>(archive_.substr(begin, end - begin), what_ + ": data.pkl");
}

TorchArchive::Range TorchArchive::storage(std::string_view key) const {
  const auto found = members_.find(fmt::format("{}data/{}", root_, key));
  require(found != members_.end(), "{} has no storage \"{}\", which its pickle names", what_,
          printable_line(key));
  return found->second;
}

bool TorchArchive::is_tensor(const PickleValue& value) { return find_rebuild(value).has_value(); }

TorchTensor TorchArchive::tensor(const PickleValue& value) const {
  const auto call = find_rebuild(value);
  require(call.has_value(), "{}: found {}, wanted a tensor", what_, value.kind_name());
  const PickleValue& a = call->arguments;  // storage, offset, shape, strides, ...
  require(a[0].kind() == Pickle::Kind::kPersistent, "{}: a tensor has no storage", what_);
  const PickleValue id = a[0].arguments();  // "storage", class, key, device, count
  require(id.size() >= 3 && id[0].is_string() && id[0].as_string() == "storage",
          "{}: a tensor's storage is something else", what_);
  TorchTensor t;
  t.shape = shape_of(a[2]);
  t.strides = shape_of(a[3]);
  require(t.shape.size() == t.strides.size(), "{}: shape {} with {} strides", what_,
          to_string(t.shape), t.strides.size());
  require(t.shape.size() <= kMaxDims, "{}: a tensor has {} dimensions, wanted at most {}", what_,
          t.shape.size(), kMaxDims);
  const bool is_typed = !call->name.ends_with("_v3");
  const std::string type = is_typed ? id[1].class_name() : a[6].class_name();
  const auto dtype = is_typed ? find_storage_dtype(type) : find_torch_dtype(type);
  const size_t metadata = is_typed ? 6 : 7;
  if (!dtype) {
    t.fault = fmt::format("is of {}, which weft does not have", type.empty() ? "no type" : type);
  } else if (a.size() > metadata && a[metadata].is_dict() && a[metadata].num_entries() > 0) {
    t.fault = "is a conjugated or negated view";
  }
  if (!t.fault.empty()) return t;
  t.dtype = *dtype;
  const auto bytes = checked_bytes(t.shape, t.dtype);
  const int64_t width = dtype_bytes(t.dtype), offset = a[1].as_int();
  const Range range = storage(id[2].as_string());
  const auto held = static_cast<int64_t>(range.end - range.begin) / width;  // elements
  const auto end = bytes && offset >= 0 ? view_end(t, offset) : std::nullopt;
  require(end.has_value(), "{}: a tensor of shape {} has no size", what_, to_string(t.shape));
  if (*bytes == 0) return t;
  require(*end <= held, "{}: a tensor of shape {} ends at element {} of a storage of {}", what_,
          to_string(t.shape), *end, held);
  t.begin = range.begin + static_cast<size_t>(offset * width);
  // A few bytes can describe any size in this way.
  if (*bytes > range.end - range.begin) t.fault = "repeats the elements of its storage (expand)";
  return t;
}

void TorchArchive::read(const TorchTensor& t, int64_t begin, int64_t end, void* out) const {
  ensure(t.fault.empty(), "a tensor that cannot be read");
  if (begin >= end) return;
  if (map_) return read_torch(*map_, map_begin_, t, begin, end, out);
  const auto* first = reinterpret_cast<const std::byte*>(archive_.data()) + t.begin;
  read_strided(t, first, begin, end, static_cast<std::byte*>(out));
}

void read_torch(const MappedFile& map, size_t archive_begin, const TorchTensor& t, int64_t begin,
                int64_t end, void* out) {
  if (begin >= end) return;
  const size_t at = archive_begin + t.begin;
  if (t.is_contiguous()) return read_mapped(map, at, dtype_bytes(t.dtype), begin, end, out);
  read_strided(t, map.data() + at, begin, end, static_cast<std::byte*>(out));
  check_mapped_file(map.data());
  const int64_t width = dtype_bytes(t.dtype);
  if (static_cast<size_t>((end - begin) * width) >= kLargeRead)
    map.drop_pages(at, at + static_cast<size_t>(*view_end(t, 0) * width));
}

const std::byte* TorchArchive::data(const TorchTensor& t) const {
  ensure(t.is_contiguous() && t.fault.empty(), "bytes of a tensor that is not contiguous");
  return reinterpret_cast<const std::byte*>(archive_.data()) + t.begin;
}

}  // namespace weft
