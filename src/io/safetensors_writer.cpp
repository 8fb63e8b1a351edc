// io/safetensors_writer.cpp: header first, then the tensors' bytes in order.
#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "io/safetensors.h"

namespace weft {
namespace {

constexpr size_t kAlignment = 64;

// Sets begin and end, larger element types first.
std::vector<TensorInfo> place(std::vector<TensorInfo> tensors) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return dtype_bytes(a.dtype) > dtype_bytes(b.dtype);
  });
  size_t at = 0;
  for (TensorInfo& t : tensors) {
    const auto bytes = checked_bytes(t.shape, t.dtype);
    ensure(bytes.has_value(),
           fmt::format("tensor \"{}\" has shape {}", t.name, to_string(t.shape)));
    t.begin = at;
    t.end = at += *bytes;
  }
  return tensors;
}

// The eight bytes of length and the header, padded with blanks so that the data is aligned.
std::string header_bytes(const std::vector<TensorInfo>& tensors,
                         const std::map<std::string, std::string>& metadata) {
  Json::Object entries;
  if (!metadata.empty()) {
    Json::Object notes;
    for (const auto& [key, value] : metadata) notes.emplace_back(key, value);
    entries.emplace_back("__metadata__", std::move(notes));
  }
  for (const TensorInfo& t : tensors) {
    Json::Array shape(t.shape.begin(), t.shape.end());
    Json::Object entry;
    entry.emplace_back("dtype", safetensors_name(t.dtype));
    entry.emplace_back("shape", std::move(shape));
    entry.emplace_back("data_offsets", Json::Array{uint64_t{t.begin}, uint64_t{t.end}});
    entries.emplace_back(t.name, std::move(entry));
  }
  std::string text(8, '\0');
  text += Json(std::move(entries)).dump();
  text.append((kAlignment - text.size() % kAlignment) % kAlignment, ' ');
  const uint64_t length = text.size() - 8;
  for (size_t i = 0; i < 8; ++i) text[i] = static_cast<char>(length >> (8 * i) & 0xff);
  return text;
}

}  // namespace

SafetensorsPlan plan_safetensors(std::vector<TensorInfo> tensors,
                                 const std::map<std::string, std::string>& metadata) {
  tensors = place(std::move(tensors));
  std::string header = header_bytes(tensors, metadata);
  return {std::move(header), std::move(tensors)};
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : plan_(plan_safetensors(std::move(tensors), metadata)),
      out_(path, FileWriter::Mode::kTruncate) {
  out_.write(plan_.header);
  written_ = plan_.header.size();
}

void SafetensorsWriter::write(const void* bytes, size_t size) {
  out_.write(bytes, size);
  written_ += size;
}

void SafetensorsWriter::finish() {
  const size_t wanted = plan_.file_bytes();
  ensure(written_ == wanted, fmt::format("{} of {} bytes written", written_, wanted));
  out_.sync();
}

void write_safetensors(const std::filesystem::path& path, const std::vector<TensorToWrite>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<TensorInfo> infos;
  std::map<std::string, const void*> data;
  for (const TensorToWrite& t : tensors) {
    infos.push_back({t.name, t.dtype, t.shape, 0, 0});
    ensure(data.emplace(t.name, t.data).second, fmt::format("tensor \"{}\" given twice", t.name));
  }
  SafetensorsWriter writer(path, std::move(infos), metadata);
  for (const TensorInfo& t : writer.tensors()) writer.write(data[t.name], t.end - t.begin);
  writer.finish();
}

}  // namespace weft
