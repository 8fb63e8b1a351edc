// io/zip_file.cpp: the directory at the archive's end, checked against the local headers.
//
// An archive may come from anywhere: every offset and size is checked against the bytes that are
// there, and nothing is allocated by a count that the archive states.
#include "io/zip_file.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "io/zip64.h"

namespace weft {
namespace {

constexpr std::string_view kLocal = "PK\x03\x04", kEntry = "PK\x01\x02", kEnd = "PK\x05\x06";
constexpr std::string_view kEnd64 = "PK\x06\x06", kLocator = "PK\x06\x07";
constexpr size_t kLocalBytes = 30, kEntryBytes = 46, kEndBytes = 22;
constexpr size_t kEnd64Bytes = 56, kLocatorBytes = 20;
constexpr uint16_t kZip64Field = 1;
constexpr uint64_t kEncryptedFlags = 0x2041;  // bit 0; strong, bit 6; masked headers, bit 13
constexpr const char* kDamaged = "the file may be truncated or damaged; fetch or write it again";

// A member with the place of its local header.
struct Placed {
  ZipMember member;
  size_t header = 0;
};

class ZipReader {
 public:
  ZipReader(std::string_view archive, std::string_view what) : archive_(archive), what_(what) {}

  std::vector<ZipMember> read() {
    read_end();
    std::vector<Placed> placed;
    std::set<std::string_view> names;
    for (size_t at = directory_begin_; at < directory_end_;) {
      placed.push_back(read_entry(at));
      check(names.insert(archive_.substr(at + kEntryBytes, number(at + 28, 2))).second,
            placed.back().member.name, "is listed twice");
      at += kEntryBytes + number(at + 28, 2) + number(at + 30, 2) + number(at + 32, 2);
    }
    check(placed.size() == num_entries_, "",
          fmt::format("the directory has {} entries, but states {}", placed.size(), num_entries_));
    return in_order(std::move(placed));
  }

 private:
  void check(bool ok, std::string_view member, const std::string& message,
             const char* hint = kDamaged) const {
    if (ok) return;
    const std::string where =
        member.empty() ? "" : fmt::format("member \"{}\" ", printable_line(member));
    throw UserError(fmt::format("{}: {}{}", what_, where, message), hint);
  }

  // Little-endian; the caller has checked that the bytes are there.
  uint64_t number(size_t at, size_t bytes) const {
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;) value = value << 8 | static_cast<uint8_t>(archive_[at + i]);
    return value;
  }
  bool has(std::string_view signature, size_t at, size_t bytes) const {
    return at <= archive_.size() && bytes <= archive_.size() - at &&
           archive_.substr(at, signature.size()) == signature;
  }

  // torch.save writes no comment: the end record is the last 22 bytes. Where a zip64 record stands
  // before it, that one counts; the other has its numbers too, or all bits set.
  void read_end() {
    check(archive_.size() >= kEndBytes, "",
          fmt::format("{} bytes are too few for a zip archive", archive_.size()));
    const size_t end = archive_.size() - kEndBytes;
    check(has(kEnd, end, kEndBytes) && number(end + 20, 2) == 0, "",
          "does not end with a zip archive's end record");
    uint64_t disks = number(end + 4, 4), here = number(end + 8, 2);
    uint64_t size = number(end + 12, 4), begin = number(end + 16, 4);
    num_entries_ = number(end + 10, 2);
    size_t limit = end;
    if (end >= kLocatorBytes && has(kLocator, end - kLocatorBytes, kLocatorBytes)) {
      const size_t locator = end - kLocatorBytes;
      const uint64_t record = number(locator + 8, 8);
      check(locator >= kEnd64Bytes && record == locator - kEnd64Bytes &&
                has(kEnd64, static_cast<size_t>(record), kEnd64Bytes),
            "", "the zip64 end record is not where the archive says");
      limit = static_cast<size_t>(record);
      disks = number(limit + 16, 8);
      here = number(limit + 24, 8);
      num_entries_ = number(limit + 32, 8);
      size = number(limit + 40, 8);
      begin = number(limit + 48, 8);
    }
    check(disks == 0 && here == num_entries_, "", "is part of an archive in several files");
    check(
        size <= limit && begin == limit - size, "",
        fmt::format("the directory of {} bytes at {} does not end at byte {}", size, begin, limit));
    directory_begin_ = static_cast<size_t>(begin);
    directory_end_ = limit;
  }

  Placed read_entry(size_t at) const {
    check(has(kEntry, at, kEntryBytes) && at + kEntryBytes <= directory_end_, "",
          fmt::format("the directory has no entry at byte {}", at));
    const size_t name_bytes = number(at + 28, 2), extra_bytes = number(at + 30, 2);
    check(name_bytes + extra_bytes + number(at + 32, 2) <= directory_end_ - at - kEntryBytes, "",
          fmt::format("the entry at byte {} goes beyond the directory", at));
    const std::string name(archive_.substr(at + kEntryBytes, name_bytes));
    check(!name.empty(), "", fmt::format("the entry at byte {} has no name", at));
    check((number(at + 8, 2) & kEncryptedFlags) == 0, name, "is encrypted",
          "write it without a password");
    check(number(at + 10, 2) == 0, name,
          fmt::format("is compressed (method {}), wanted a stored one", number(at + 10, 2)),
          "torch.save does not compress; write the archive again with it, or with zip -0");
    uint64_t packed = number(at + 20, 4), size = number(at + 24, 4), header = number(at + 42, 4);
    read_zip64(name, at + kEntryBytes + name_bytes, extra_bytes, {&size, &packed, &header});
    check(packed == size, name, fmt::format("has {} bytes, {} of them stored", size, packed));
    check(number(at + 34, 2) == 0, name, "is in another file");
    Placed placed = locate(name, header, size);
    placed.member.checksum = static_cast<uint32_t>(number(at + 16, 4));
    return placed;
  }

  // Of the extra fields, the one for values that do not fit 32 bits: it holds only those.
  void read_zip64(const std::string& name, size_t at, size_t bytes,
                  const std::vector<uint64_t*>& values) const {
    const size_t end = at + bytes;
    while (end - at >= 4) {
      const uint64_t id = number(at, 2), field_bytes = number(at + 2, 2);
      at += 4;
      check(field_bytes <= end - at, name, "has an extra field beyond its entry");
      const size_t field_end = at + static_cast<size_t>(field_bytes);
      size_t from = at;
      for (uint64_t* value : values) {
        if (id != kZip64Field || *value != kIn64) continue;
        check(field_end - from >= 8, name, "has a zip64 field that is too short");
        *value = number(from, 8);
        from += 8;
      }
      at = field_end;
    }
  }

  // The member's bytes begin after its local header, which repeats the name.
  Placed locate(const std::string& name, uint64_t header, uint64_t size) const {
    check(header < directory_begin_ && directory_begin_ - header >= kLocalBytes &&
              has(kLocal, static_cast<size_t>(header), kLocalBytes),
          name, fmt::format("has no local header at byte {}", header));
    const auto at = static_cast<size_t>(header);
    const size_t name_bytes = number(at + 26, 2), extra_bytes = number(at + 28, 2);
    const size_t left = directory_begin_ - at - kLocalBytes;
    check(name_bytes + extra_bytes <= left && archive_.substr(at + kLocalBytes, name_bytes) == name,
          name, fmt::format("has another name in its local header at byte {}", header));
    check(number(at + 8, 2) == 0, name, "is compressed by its local header");
    const size_t begin = at + kLocalBytes + name_bytes + extra_bytes;
    check(
        size <= directory_begin_ - begin, name,
        fmt::format("has {} bytes at {}, beyond the archive's {}", size, begin, directory_begin_));
    return {{name, begin, begin + static_cast<size_t>(size), 0}, at};
  }

  // By offset. Members that share bytes make a small file look large ("zip bombs").
  std::vector<ZipMember> in_order(std::vector<Placed> placed) const {
    std::sort(placed.begin(), placed.end(),
              [](const Placed& a, const Placed& b) { return a.header < b.header; });
    std::vector<ZipMember> members;
    size_t end = 0;
    for (Placed& p : placed) {
      check(p.header >= end, p.member.name,
            fmt::format("begins at byte {} inside the member before it", p.header));
      end = p.member.end;
      members.push_back(std::move(p.member));
    }
    return members;
  }

  std::string_view archive_, what_;
  size_t directory_begin_ = 0, directory_end_ = 0;
  uint64_t num_entries_ = 0;
};

}  // namespace

std::vector<ZipMember> parse_zip(std::string_view archive, std::string_view what) {
  return ZipReader(archive, what).read();
}

void check_member(std::string_view archive, const ZipMember& member, std::string_view what) {
  if (member.checksum == 0) return;
  const std::string_view bytes = archive.substr(member.begin, member.end - member.begin);
  const auto found =
      static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  if (found == member.checksum) return;
  throw UserError(fmt::format("{}: member \"{}\" has the checksum {:08x}, wanted {:08x}", what,
                              printable_line(member.name), found, member.checksum),
                  kDamaged);
}

bool is_zip(std::string_view head) { return head.starts_with(kLocal); }

}  // namespace weft
