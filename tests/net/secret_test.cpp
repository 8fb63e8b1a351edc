// tests/net/secret_test.cpp: files that a secret may and may not come from.
#include "net/secret.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;

class SecretFile : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path write(const std::string& text, fs::perms mode = fs::perms(0600)) {
    const fs::path path = folder_ / "given";
    fs::remove(path);
    std::ofstream(path) << text;
    fs::permissions(path, mode);
    return path;
  }
  static std::string complaint(const fs::path& path) {
    try {
      Secret::from_file(path);
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  }

  const fs::path folder_ = fs::path(::testing::TempDir()) / fmt::format("secret-{}", ::getpid());
};

TEST_F(SecretFile, IsMadeForItsOwnerAlone) {
  const mode_t before = ::umask(0);  // the mode does not depend on it
  const Secret secret = Secret::random();
  secret.write_new_file(folder_ / "new");
  ::umask(before);
  struct stat info {};
  ASSERT_EQ(::stat((folder_ / "new").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
  EXPECT_EQ(info.st_size, 65);
  EXPECT_EQ(Secret::from_file(folder_ / "new").key(), secret.key());
  EXPECT_NE(Secret::random().key(), secret.key());
}

TEST_F(SecretFile, IsNeverOverwritten) {
  const fs::path path = write("somebody else's secret");
  EXPECT_THROW(Secret::random().write_new_file(path), UserError);
  const fs::path link = folder_ / "link";
  fs::create_symlink(folder_ / "elsewhere", link);
  EXPECT_THROW(Secret::random().write_new_file(link), UserError);
  EXPECT_FALSE(fs::exists(folder_ / "elsewhere"));
  EXPECT_EQ(Secret::from_file(path).key(), Secret::from_text("somebody else's secret", "").key());
}

TEST_F(SecretFile, IsRefusedWhereOthersMayUseIt) {
  for (const int mode : {0640, 0604, 0644, 0666, 0620, 0602, 0610}) {
    const std::string why = complaint(write("0123456789abcdef", fs::perms(mode)));
    EXPECT_NE(why.find(fmt::format("has mode {:04o}: others may use it", mode)), std::string::npos)
        << why;
  }
  EXPECT_EQ(complaint(write("0123456789abcdef", fs::perms(0400))), "");
}

TEST_F(SecretFile, IsRefusedWhereItIsNone) {
  EXPECT_NE(complaint(folder_ / "absent").find("No such file"), std::string::npos);
  EXPECT_NE(complaint(folder_).find("is not a regular file"), std::string::npos);
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_NE(complaint(folder_ / "pipe").find("is not a regular file"), std::string::npos);
  EXPECT_NE(complaint(write("")).find("is empty"), std::string::npos);
  EXPECT_NE(complaint(write("\r\n\n")).find("is empty"), std::string::npos);
  EXPECT_NE(complaint(write("too short\n")).find("holds 9 bytes: a secret has 16 to 4096"),
            std::string::npos);
  EXPECT_NE(complaint(write(std::string(5000, 'x'))).find("holds at least 4099 bytes"),
            std::string::npos);
  EXPECT_NE(complaint(write(std::string(4097, 'x'))), "");
  std::string longest(4098, '\n');
  std::fill_n(longest.begin(), 4096, 'x');
  EXPECT_EQ(complaint(write(longest)), "");
}

TEST_F(SecretFile, LineEndsAtTheEndAreNoPartOfIt) {
  const Digest key = Secret::from_text("0123456789abcdef", "").key();
  for (const char* end : {"", "\n", "\r\n", "\n\n"}) {
    EXPECT_EQ(Secret::from_file(write(std::string("0123456789abcdef") + end)).key(), key);
  }
  EXPECT_NE(Secret::from_file(write("0123456789abcdef ")).key(), key);
}

// What is refused may be a secret all the same: no message repeats it.
TEST_F(SecretFile, NoMessageRepeatsIt) {
  for (const auto& [text, mode] :
       {std::pair("hunter2", 0600), std::pair("hunter2hunter2hunter2", 0644)}) {
    const std::string why = complaint(write(text, fs::perms(mode)));
    EXPECT_NE(why, "");
    EXPECT_EQ(why.find("hunter2"), std::string::npos);
  }
}

TEST(Nonce, NeverRepeats) { EXPECT_NE(random_nonce(), random_nonce()); }

}  // namespace
}  // namespace weft::testing
