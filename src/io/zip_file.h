// io/zip_file.h: the members of a zip archive as torch.save writes it: stored, not compressed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct ZipMember {
  std::string name;
  size_t begin = 0, end = 0;  // bytes of the archive
  uint32_t checksum = 0;      // CRC-32 that the directory states; 0: none, torch may leave it out
};

// The members, by offset. `archive` is the whole archive, `what` its name in messages. Checked:
// the end record (zip64 too), every entry of the directory and its local header, that names are
// unique, and that no two members share a byte. UserError names the member and what is wrong;
// compressed and encrypted members are refused, so that nothing here ever grows on reading.
std::vector<ZipMember> parse_zip(std::string_view archive, std::string_view what);

// UserError where the member's bytes have another checksum than the directory states. It reads all
// of them, at about 3 GB/s.
void check_member(std::string_view archive, const ZipMember& member, std::string_view what);

// Whether the bytes begin as a zip archive does.
bool is_zip(std::string_view head);

}  // namespace weft
