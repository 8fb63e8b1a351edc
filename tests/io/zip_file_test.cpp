// tests/io/zip_file_test.cpp: archives of torch.save, and archives that lie.
#include "io/zip_file.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/io/temporary_folder.h"
#include "tests/io/torch_bytes.h"

namespace weft {
namespace {

using testing::error_of;
using testing::little_endian;
using testing::ZipBytes;

ZipBytes two_members() { return ZipBytes().add("a/x", "hello").add("a/y", std::string(70, 'y')); }

std::string zip_refusal(const std::string& archive) {
  return error_of<UserError>([&] { parse_zip(archive, "lie.zip"); });
}

// The archive with the bytes at an offset from its directory's entry `i` replaced.
std::string with_entry(ZipBytes zip, size_t i, size_t offset, const std::string& bytes) {
  std::string archive = zip.bytes();
  size_t at = 0;
  for (size_t k = 0; k <= i; ++k) at = archive.find("PK\x01\x02", at + (k > 0));
  return archive.replace(at + offset, bytes.size(), bytes);
}

TEST(ZipFile, FindsStoredMembers) {
  const std::string archive = two_members().bytes();
  const auto members = parse_zip(archive, "good");
  ASSERT_EQ(members.size(), 2u);
  EXPECT_EQ(members[0].name, "a/x");
  EXPECT_EQ(archive.substr(members[0].begin, members[0].end - members[0].begin), "hello");
  EXPECT_EQ(archive.substr(members[1].begin, members[1].end - members[1].begin),
            std::string(70, 'y'));
  EXPECT_TRUE(parse_zip(ZipBytes().bytes(), "empty").empty());
  // Without the zip64 record and its locator, as small archives of other programs are.
  const size_t end = archive.size() - 22;
  EXPECT_EQ(parse_zip(archive.substr(0, end - 76) + archive.substr(end), "plain").size(), 2u);
}

TEST(ZipFile, SizesInAZip64Field) {
  std::string archive = ZipBytes().add("a/x", "hello").bytes();
  const size_t at = archive.find("PK\x01\x02"), size = 46 + 3;
  std::string entry = archive.substr(at, size);
  entry.replace(20, 8, std::string(8, '\xff'));
  entry.replace(30, 2, little_endian(20, 2));
  entry += little_endian(1, 2) + little_endian(16, 2) + little_endian(5, 8) + little_endian(5, 8);
  const auto with = [&](const std::string& e) {
    const size_t directory = e.size();
    std::string out = archive.substr(0, at) + e + archive.substr(at + size);
    const size_t record = at + directory;
    out.replace(record + 40, 8, little_endian(directory, 8));
    out.replace(record + 56 + 8, 8, little_endian(record, 8));
    return out;
  };
  EXPECT_EQ(parse_zip(with(entry), "zip64")[0].end - parse_zip(with(entry), "zip64")[0].begin, 5u);
  entry.replace(32 + 19, 2, little_endian(4, 2));  // the field claims to be shorter
  EXPECT_NE(zip_refusal(with(entry)).find("lie.zip"), std::string::npos);
}

TEST(ZipFile, ChecksumsAreThoseOfTheBytes) {
  const auto check = [](uint32_t checksum) {
    ZipBytes zip = ZipBytes().add("a/x", "hello");
    zip.members[0].checksum = checksum;
    const std::string archive = zip.bytes();
    check_member(archive, parse_zip(archive, "lie.zip")[0], "lie.zip");
  };
  check(0x3610a686);  // CRC-32 of "hello"
  check(0);           // torch.serialization.set_crc32_options(False)
  EXPECT_NE(error_of<UserError>([&] {
              check(0x3610a687);
            }).find("lie.zip: member \"a/x\" has the checksum 3610a686, wanted 3610a687"),
            std::string::npos);
}

TEST(ZipFile, TruncatedAnywhereIsRefused) {
  const std::string archive = two_members().bytes();
  for (size_t n = 0; n < archive.size(); ++n) {
    EXPECT_NE(zip_refusal(archive.substr(0, n)).find("lie.zip"), std::string::npos) << n;
  }
  EXPECT_NE(zip_refusal(archive + "x").find("end record"), std::string::npos);
}

TEST(ZipFile, FlippedBitsStayWithinTheArchive) {
  const std::string archive = two_members().bytes();
  for (size_t i = 0; i < archive.size() * 8; ++i) {
    std::string bad = archive;
    bad[i / 8] = static_cast<char>(bad[i / 8] ^ (1 << (i % 8)));
    try {
      for (const ZipMember& m : parse_zip(bad, "flip")) {
        EXPECT_LE(m.begin, m.end);
        EXPECT_LE(m.end, bad.size());
      }
    } catch (const UserError&) {
    }
  }
}

TEST(ZipFile, CompressedAndEncryptedMembersAreRefused) {
  ZipBytes zip = two_members();
  zip.members[1].method = 8;
  EXPECT_NE(zip_refusal(zip.bytes()).find("\"a/y\" is compressed (method 8)"), std::string::npos);
  zip = two_members();
  zip.members[0].flags |= 1;
  EXPECT_NE(zip_refusal(zip.bytes()).find("is encrypted"), std::string::npos);
}

// A zip bomb without compression lets members share their bytes.
TEST(ZipFile, MembersMayNotOverlap) {
  ZipBytes zip = two_members();
  zip.members[1].name = "a/x";
  EXPECT_NE(zip_refusal(zip.bytes()).find("listed twice"), std::string::npos);
  // The first member's size covers the second one.
  const std::string size = little_endian(120, 4);
  EXPECT_NE(zip_refusal(with_entry(two_members(), 0, 20, size + size)).find("inside the member"),
            std::string::npos);
}

TEST(ZipFile, StatedSizesAndCountsAreNotBelieved) {
  const std::string huge = little_endian(0xfffffff0, 4), all = little_endian(0xffffffff, 4);
  EXPECT_NE(zip_refusal(with_entry(two_members(), 0, 20, huge + huge)).find("beyond the archive"),
            std::string::npos);
  EXPECT_NE(zip_refusal(with_entry(two_members(), 0, 42, huge)).find("no local header"),
            std::string::npos);
  EXPECT_NE(zip_refusal(with_entry(two_members(), 0, 20, all + all)).find("beyond the archive"),
            std::string::npos);
  EXPECT_NE(
      zip_refusal(with_entry(two_members(), 1, 28, little_endian(0xffff, 2))).find("beyond the"),
      std::string::npos);
  std::string archive = two_members().bytes();
  const size_t record = archive.size() - 22 - 20 - 56;
  for (const size_t field : {size_t{24}, size_t{32}})
    archive.replace(record + field, 8, std::string(8, '\x7f'));
  EXPECT_NE(zip_refusal(archive).find("2 entries, but states"), std::string::npos);
}

}  // namespace
}  // namespace weft
