// tests/io/byte_stream_test.cpp: which errors of opening a file are the user's.
#include "io/byte_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "tests/io/temporary_folder.h"
#include "tests/resource_limit.h"

namespace weft {
namespace {

TEST(ByteStream, AWrongNameIsAUserErrorOthersAreNot) {
  const testing::TemporaryFolder folder;
  EXPECT_THROW(open_byte_stream((folder / "none.txt").string()), UserError);
  const std::string path = (folder / "socket").string();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path.size(), sizeof address.sun_path);
  path.copy(address.sun_path, path.size());
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_THROW(open_byte_stream(path), UserError);
#ifndef __SANITIZE_ADDRESS__  // built with UBSan, which needs descriptors to check the exception's
                              // type
  const std::string text = (folder / "text").string();
  std::ofstream(text) << "a";
  {
    const testing::ResourceLimit limit(RLIMIT_NOFILE, 0);  // too many open files
    EXPECT_THROW(open_byte_stream(text), RunError);
  }
  EXPECT_NO_THROW(open_byte_stream(text));
#endif
  ::close(socket);
}

}  // namespace
}  // namespace weft
