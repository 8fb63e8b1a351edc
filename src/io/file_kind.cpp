// io/file_kind.cpp: signatures, and what text may not hold.
#include "io/file_kind.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "io/byte_stream.h"

namespace weft {
namespace {

using namespace std::string_view_literals;

struct Signature {
  std::string_view bytes, kind;
};
constexpr Signature kSignatures[] = {
    {"PK\x03\x04"sv, "zip archive (as written by torch.save)"},
    {"\x80\x02"sv, "pickled Python object"},
    {"\x80\x03"sv, "pickled Python object"},
    {"\x80\x04"sv, "pickled Python object"},
    {"\x80\x05"sv, "pickled Python object"},
    {"\x93NUMPY"sv, "NumPy array"},
    {"\x89HDF"sv, "HDF5 file"},
    {"GGUF"sv, "GGUF model"},
    {"PAR1"sv, "Parquet file: its name should end in .parquet"},
    {"ARROW1"sv, "Arrow file: its name should end in .arrow"},
    {"\x1f\x8b"sv, "gzip file: its name should end in .gz"},
    {"\x28\xb5\x2f\xfd"sv, "zstd file: its name should end in .zst"},
    {"BZh"sv, "bzip2 file"},
    {"\xfd"
     "7zXZ"sv,
     "xz file"},
    {"\x89PNG"sv, "PNG picture"},
    {"\x7f"
     "ELF"sv,
     "program"},
    {"SQLite format 3\0"sv, "SQLite database"},
    {"\xff\xfe"sv, "text in UTF-16, wanted UTF-8"},
    {"\xfe\xff"sv, "text in UTF-16, wanted UTF-8"},
};

uint32_t byte_at(std::string_view bytes, size_t i) { return static_cast<unsigned char>(bytes[i]); }

// Two zeros, the type, the number of dims; then each dim as four bytes, big-endian.
std::string idx_kind(std::string_view head) {
  constexpr std::pair<uint32_t, std::string_view> kTypes[] = {{0x08, "uint8"},   {0x09, "int8"},
                                                              {0x0B, "int16"},   {0x0C, "int32"},
                                                              {0x0D, "float32"}, {0x0E, "float64"}};
  if (head.size() < 4 || byte_at(head, 0) != 0 || byte_at(head, 1) != 0) return "";
  const size_t dims = byte_at(head, 3);
  if (dims < 1 || dims > 4 || head.size() < 4 + 4 * dims) return "";
  for (const auto& [code, name] : kTypes) {
    if (byte_at(head, 2) != code) continue;
    std::string shape;
    for (size_t d = 0; d < dims; ++d) {
      uint32_t size = 0;
      for (size_t i = 0; i < 4; ++i) size = size << 8 | byte_at(head, 4 + 4 * d + i);
      shape += fmt::format("{}{}", d > 0 ? " x " : "", size);
    }
    return fmt::format("IDX file, {} of {}", shape, name);
  }
  return "";
}

// Text holds no zero byte and few control characters. Bad UTF-8 alone does not make a file binary:
// such text is repaired, with a warning.
bool is_text(std::string_view head) {
  size_t controls = 0;
  for (const char c : head) {
    if (c == '\0') return false;
    const bool is_common = (c >= '\t' && c <= '\r') || c == '\x1b';
    controls += static_cast<unsigned char>(c) < 0x20 && !is_common;
  }
  return controls * 10 <= head.size();
}

}  // namespace

// A text may begin with the letters of a signature ("GGUF is a format"): they count only before
// bytes that do not occur in text.
std::string binary_kind(std::string_view head) {
  const bool may_be_text = is_text(head);
  for (const Signature& s : kSignatures) {
    if (!head.starts_with(s.bytes)) continue;
    const bool is_letters =
        std::all_of(s.bytes.begin(), s.bytes.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
    if (!is_letters || !may_be_text) return std::string(s.kind);
  }
  if (std::string idx = idx_kind(head); !idx.empty()) return idx;
  return may_be_text ? "" : "bytes of an unknown kind";
}

std::string head_of_file(const std::string& path) {
  const auto stream = open_byte_stream(path);
  std::string head(kHeadBytes, '\0');
  size_t size = 0;
  for (size_t n; size < head.size(); size += n) {
    n = stream->read(head.data() + size, head.size() - size);
    if (n == 0) break;
  }
  head.resize(size);
  return head;
}

std::string binary_kind_of_file(const std::string& path) { return binary_kind(head_of_file(path)); }

}  // namespace weft
