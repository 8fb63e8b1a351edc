// io/safetensors.cpp: eight bytes of header length, a JSON header, the data without gaps.
//
// A file may come from anywhere: nothing in it is trusted before it is checked. The checks are
// those of the reference implementation (Rust).
#include "io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/json.h"

namespace weft {
namespace {

constexpr size_t kLengthBytes = 8;
constexpr size_t kMaxHeaderBytes = 100'000'000;  // as the reference
constexpr const char* kTruncated = "the file may be a truncated download; fetch it again";
constexpr const char* kNotOurs =
    "the file is damaged or not a safetensors file; fetch or write it again";

// Reads one header; what_ is the file's name in messages.
class HeaderReader {
 public:
  HeaderReader(std::string_view file, std::string_view what) : file_(file), what_(what) {}

  SafetensorsHeader read() {
    const Json json = parse_json(header_text(), fmt::format("{}: header", what_));
    check(json.is_object(), "", fmt::format("the header is {}, wanted an object", json.kind()));
    std::set<std::string_view> names;
    for (const auto& [name, value] : json.as_object()) {
      check(names.insert(name).second, name, "is listed twice");
      if (name == "__metadata__") {
        read_metadata(value);
      } else {
        out_.tensors.push_back(read_tensor(name, value));
      }
    }
    check_order();
    return std::move(out_);
  }

 private:
  void check(bool ok, std::string_view tensor, const std::string& message,
             const char* hint = kNotOurs) const {
    if (ok) return;
    const std::string where = tensor.empty() ? "" : fmt::format("tensor \"{}\" ", tensor);
    throw UserError(fmt::format("{}: {}{}", what_, where, message), hint);
  }

  std::string_view header_text() {
    check(file_.size() >= kLengthBytes, "",
          fmt::format("{} bytes are too few for a safetensors file", file_.size()), kTruncated);
    uint64_t length = 0;
    for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<uint8_t>(file_[i]);
    check(length <= kMaxHeaderBytes, "",
          fmt::format("header of {} bytes, more than the {} we read", length, kMaxHeaderBytes));
    check(length <= file_.size() - kLengthBytes, "",
          fmt::format("header of {} bytes in a file of {}", length, file_.size()), kTruncated);
    out_.data_start = kLengthBytes + length;
    const std::string_view text = file_.substr(kLengthBytes, length);
    check(text.starts_with('{'), "", "the header does not start with '{'");
    return text;
  }

  void read_metadata(const Json& value) {
    check(value.is_object(), "", fmt::format("__metadata__ is {}, wanted an object", value.kind()));
    for (const auto& [key, text] : value.as_object()) {
      check(text.is_string(), "",
            fmt::format("__metadata__ \"{}\" is {}, wanted a string", key, text.kind()));
      out_.metadata[key] = text.as_string();
    }
  }

  std::vector<int64_t> read_sizes(const std::string& name, const Json& entry,
                                  const char* key) const {
    const Json* list = entry.find(key);
    check(list && list->is_array(), name, fmt::format("has no list {}", key));
    std::vector<int64_t> sizes;
    for (const Json& v : list->as_array()) {
      check(v.is_int() && v.as_int() >= 0, name,
            fmt::format("has {} in {}, wanted a whole number", v.dump(), key));
      sizes.push_back(v.as_int());
    }
    return sizes;
  }

  TensorInfo read_tensor(const std::string& name, const Json& entry) const {
    check(entry.is_object(), name, fmt::format("is {}, wanted an object", entry.kind()));
    std::set<std::string_view> keys;
    for (const auto& [key, value] : entry.as_object())
      check(keys.insert(key).second, name, fmt::format("has {} twice", key));
    const Json* type = entry.find("dtype");
    check(type && type->is_string(), name, "has no dtype");
    const auto dtype = find_safetensors_dtype(type->as_string());
    check(dtype.has_value(), name,
          fmt::format("has dtype {}, which weft does not support", type->as_string()),
          "supported: F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL; convert the tensor to one of them");
    const Shape shape = read_sizes(name, entry, "shape");
    const std::vector<int64_t> offsets = read_sizes(name, entry, "data_offsets");
    check(offsets.size() == 2, name,
          fmt::format("has {} data_offsets, wanted begin and end", offsets.size()));
    const auto begin = static_cast<size_t>(offsets[0]), end = static_cast<size_t>(offsets[1]);
    check(begin <= end, name, fmt::format("begins at byte {} and ends at {}", begin, end));
    const size_t data_bytes = file_.size() - out_.data_start;
    check(end <= data_bytes, name,
          fmt::format("ends at byte {} of a data section of {}", end, data_bytes), kTruncated);
    const auto bytes = checked_bytes(shape, *dtype);
    check(bytes.has_value(), name,
          fmt::format("has shape {}, which overflows a 64-bit count", to_string(shape)));
    check(*bytes == end - begin, name,
          fmt::format("has {} bytes, but shape {} of {} needs {}", end - begin, to_string(shape),
                      type->as_string(), *bytes));
    return {name, *dtype, shape, begin, end};
  }

  // Sorted, every tensor begins where the one before ends, and the last ends with the file.
  void check_order() {
    std::sort(out_.tensors.begin(), out_.tensors.end(), [](const auto& a, const auto& b) {
      return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    size_t at = 0;
    for (const TensorInfo& t : out_.tensors) {
      check(t.begin == at, t.name,
            fmt::format("begins at byte {}, but the one before ends at {}: {}", t.begin, at,
                        t.begin < at ? "they overlap" : "there is a gap"));
      at = t.end;
    }
    const size_t data_bytes = file_.size() - out_.data_start;
    check(at == data_bytes, "",
          fmt::format("the tensors end at byte {} of a data section of {}", at, data_bytes));
  }

  std::string_view file_, what_;
  SafetensorsHeader out_;
};

}  // namespace

SafetensorsHeader parse_safetensors(std::string_view file, std::string_view what) {
  return HeaderReader(file, what).read();
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : TensorFile(path), map_(path) {
  SafetensorsHeader header = parse_safetensors(map_.text(), path.string());
  data_start_ = header.data_start;
  metadata_ = std::move(header.metadata);
  set_tensors(std::move(header.tensors));
}

void SafetensorsFile::read(const TensorInfo& info, int64_t begin, int64_t end, void* out) const {
  read_mapped(map_, data_start_ + info.begin, dtype_bytes(info.dtype), begin, end, out);
}

}  // namespace weft
