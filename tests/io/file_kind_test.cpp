// tests/io/file_kind_test.cpp: text is recognized, other kinds are named.
#include "io/file_kind.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

using namespace std::string_view_literals;

TEST(FileKind, TextHasNoKind) {
  for (const std::string_view text :
       {""sv, "plain\n"sv, "\ttab\r\n\x1b[1mbold"sv, "caf\xC3\xA9"sv, "latin caf\xE9 noir"sv,
        "\xEF\xBB\xBFmark"sv, "{\"a\": 1}"sv, "GGUF is a file format for models.\n"sv,
        "BZh1 and PAR1\n"sv}) {
    EXPECT_EQ(binary_kind(text), "") << text;
  }
}

TEST(FileKind, BytesAreNamed) {
  EXPECT_EQ(binary_kind("PK\x03\x04xxxx"sv).substr(0, 11), "zip archive");
  EXPECT_EQ(binary_kind("PAR1\x15\x04\x15\0"sv).substr(0, 7), "Parquet");
  EXPECT_EQ(binary_kind("\0\0\x08\x03\0\0\x27\x10\0\0\0\x1c\0\0\0\x1c\0\0"sv),
            "IDX file, 10000 x 28 x 28 of uint8");
  EXPECT_EQ(binary_kind("\xff\xfe"
                        "a\0b\0"sv)
                .substr(0, 14),
            "text in UTF-16");
  EXPECT_EQ(binary_kind("some\0bytes"sv), "bytes of an unknown kind");
  EXPECT_EQ(binary_kind("\x01\x02\x03\x04 few words"sv), "bytes of an unknown kind");
}

}  // namespace
}  // namespace weft
