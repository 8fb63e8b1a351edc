// io/zip_writer.cpp: local headers, members, checksums, and the directory.
#include "io/zip_writer.h"

#include <zlib.h>

#include <algorithm>

#include "base/error.h"
#include "io/zip64.h"

namespace weft {
namespace {

constexpr uint64_t kVersion = 45;     // of the format: with zip64
constexpr uint64_t kFlags = 0x0808;   // names in UTF-8; the checksum follows the member
constexpr uint64_t kFirstDay = 0x21;  // 1980-01-01: the same bytes whenever it is written

std::string number(uint64_t value, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

// Version to flags, method 0, time and date.
std::string common_fields() {
  return number(kVersion, 2) + number(kFlags, 2) + number(0, 2) + number(0, 2) +
         number(kFirstDay, 2);
}

}  // namespace

void ZipWriter::put(const std::string& bytes) {
  out_->write(bytes);
  at_ += bytes.size();
}

void ZipWriter::begin(std::string name, uint64_t bytes) {
  end_member();
  members_.push_back({name, at_, bytes, 0});
  missing_ = bytes;
  std::string extra = number(1, 2) + number(16, 2) + number(bytes, 8) + number(bytes, 8);
  constexpr size_t kHeader = 30, kField = 4;
  const uint64_t data = at_ + kHeader + name.size() + extra.size() + kField;
  const uint64_t padding = (kAlignment - data % kAlignment) % kAlignment;
  extra += "FB" + number(padding, 2) + std::string(padding, 'Z');
  put("PK\x03\x04" + common_fields() + number(0, 4) + number(kIn64, 4) + number(kIn64, 4) +
      number(name.size(), 2) + number(extra.size(), 2) + name + extra);
}

void ZipWriter::write(const void* bytes, size_t size) {
  ensure(size <= missing_, "more bytes than a member of the archive has");
  if (size == 0) return;
  uint32_t& checksum = members_.back().checksum;
  checksum = static_cast<uint32_t>(
      crc32_z(checksum, static_cast<const Bytef*>(bytes), static_cast<z_size_t>(size)));
  out_->write(bytes, size);
  at_ += size;
  missing_ -= size;
}

void ZipWriter::end_member() {
  ensure(missing_ == 0, fmt::format("{} bytes of a member of the archive are missing", missing_));
  if (members_.empty()) return;
  const Member& m = members_.back();
  put("PK\x07\x08" + number(m.checksum, 4) + number(m.bytes, 8) + number(m.bytes, 8));
}

std::string ZipWriter::directory_entry(const Member& m) const {
  const std::string extra =
      number(1, 2) + number(24, 2) + number(m.bytes, 8) + number(m.bytes, 8) + number(m.header, 8);
  return "PK\x01\x02" + number(kVersion, 2) + common_fields() + number(m.checksum, 4) +
         number(kIn64, 4) + number(kIn64, 4) + number(m.name.size(), 2) + number(extra.size(), 2) +
         std::string(10, '\0') + number(kIn64, 4) + m.name + extra;
}

uint64_t ZipWriter::finish() {
  end_member();
  const uint64_t begin = at_, n = members_.size();
  for (const Member& m : members_) put(directory_entry(m));
  const uint64_t end = at_, size = end - begin;
  put("PK\x06\x06" + number(44, 8) + number(kVersion, 2) + number(kVersion, 2) + number(0, 8) +
      number(n, 8) + number(n, 8) + number(size, 8) + number(begin, 8));
  put("PK\x06\x07" + number(0, 4) + number(end, 8) + number(1, 4));
  const uint64_t shown = std::min<uint64_t>(n, 0xffff);
  put("PK\x05\x06" + number(0, 4) + number(shown, 2) + number(shown, 2) +
      number(std::min(size, kIn64), 4) + number(std::min(begin, kIn64), 4) + number(0, 2));
  return at_;
}

}  // namespace weft
