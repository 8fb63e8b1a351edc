// tests/io/byte_stream_test.cpp: whose fault it is that a file cannot be opened.
#include "io/byte_stream.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>

#include "base/error.h"
#include "tests/io/temporary_folder.h"

namespace weft {
namespace {

TEST(ByteStream, AWrongNameIsTheUsersAndTooManyOpenFilesAreNot) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder / "rows.txt") << "a row\n";
  EXPECT_THROW(open_byte_stream((folder / "none.txt").string()), UserError);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_THROW(open_byte_stream((folder / "rows.txt").string()), RunError);
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace weft
