// tests/base/error_test.cpp: kinds, exit codes, hints, and the location of a failed ensure().
#include "base/error.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Error, KindsHaveTheirExitCodes) {
  EXPECT_EQ(RunError("x").exit_code(), 1);
  EXPECT_EQ(UserError("x").exit_code(), 2);
  EXPECT_EQ(BugError("x").exit_code(), 70);
  EXPECT_EQ(PeerError("x").exit_code(), 75);
  EXPECT_EQ(UserError("got", "do this").hint(), "do this");
}

TEST(Error, RequireReportsTheValue) {
  EXPECT_NO_THROW(require(true, "never {}", 1));
  try {
    require(false, "got {}, wanted {}", 3, "four");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "got 3, wanted four");
  }
}

TEST(Error, EnsureNamesTheLocation) {
  EXPECT_NO_THROW(ensure(true, "never"));
  try {
    ensure(false, "two is two");
    FAIL();
  } catch (const BugError& e) {
    EXPECT_NE(std::string(e.what()).find("error_test.cpp:"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace weft
