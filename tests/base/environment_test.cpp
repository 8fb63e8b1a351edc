// tests/base/environment_test.cpp: variables that choose among words.
#include "base/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"

namespace weft {
namespace {

TEST(Environment, AcceptsListedWordsOnly) {
  constexpr const char* kName = "WEFT_TEST_CHOICE";
  const auto choose = [&] { return environment_choice(kName, {"on", "off"}); };
  ::unsetenv(kName);
  EXPECT_EQ(choose(), "");
  ::setenv(kName, "", 1);
  EXPECT_EQ(choose(), "");
  ::setenv(kName, "off", 1);
  EXPECT_EQ(choose(), "off");
  for (const char* wrong : {"of", "OFF", "off ", "0"}) {
    ::setenv(kName, wrong, 1);
    try {
      choose();
      ADD_FAILURE() << wrong;
    } catch (const UserError& e) {
      const std::string message = e.what();
      EXPECT_NE(message.find(std::string("WEFT_TEST_CHOICE=") + wrong), std::string::npos)
          << message;
      EXPECT_NE(message.find("wanted on | off"), std::string::npos) << message;
      EXPECT_NE(e.hint().find("unset"), std::string::npos) << e.hint();
    }
  }
  ::unsetenv(kName);
}

TEST(Environment, AnAnswerPrecedesTheNearestMatch) {
  constexpr const char* kName = "WEFT_TEST_CHOICE";
  const auto message_of = [&](const char* word) -> std::string {
    ::setenv(kName, word, 1);
    try {
      environment_choice(kName, {"on", "off"}, [](std::string_view other) {
        return std::string(other == "oft" ? "; that is known" : "");
      });
    } catch (const UserError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message_of("oft"), "WEFT_TEST_CHOICE=oft, wanted on | off; that is known");
  EXPECT_EQ(message_of("offf"), "WEFT_TEST_CHOICE=offf, wanted on | off, did you mean \"off\"?");
  EXPECT_EQ(message_of("off"), "");
  ::unsetenv(kName);
}

}  // namespace
}  // namespace weft
