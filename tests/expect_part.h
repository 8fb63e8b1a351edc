// tests/expect_part.h: a message has the words that it must have.
#pragma once

#include <gtest/gtest.h>

#include <string>

namespace weft::testing {

inline void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in:\n" << text;
}

}  // namespace weft::testing
