// tests/net/interface_test.cpp: only names and addresses of this machine are accepted.
#include "net/interface.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "net/store.h"

namespace weft {
namespace {

TEST(Interface, IsANameOrAnAddressOfThisMachine) {
  EXPECT_EQ(address_of_interface("lo"), "127.0.0.1");
  EXPECT_EQ(address_of_interface("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(name_of_interface("lo"), "lo");
  EXPECT_EQ(name_of_interface("127.0.0.1"), "lo");
  EXPECT_TRUE(StoreServer(address_of_interface("lo")).endpoint().starts_with("127.0.0.1:"));
}

TEST(Interface, OthersAreRejectedWithAList) {
  for (const char* name : {"nothing0", "0.0.0.0", "192.0.2.1", ""}) {
    try {
      std::ignore = address_of_interface(name);
      ADD_FAILURE() << name;
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find(name), std::string::npos) << e.what();
      EXPECT_NE(e.hint().find("lo (127.0.0.1)"), std::string::npos) << e.hint();
    }
  }
}

}  // namespace
}  // namespace weft
