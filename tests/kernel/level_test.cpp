// tests/kernel/level_test.cpp: the choice of the level.
#include "kernel/cpu/level.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "kernel/kernels.h"

namespace weft {
namespace {

TEST(Level, EveryLevelIsFoundByItsName) {
  const std::vector<const char*> names = available_levels();
  ASSERT_FALSE(names.empty());
  for (const char* name : names) {
    ASSERT_NE(find_kernels(name), nullptr) << name;
    EXPECT_STREQ(find_kernels(name)->name, name);
  }
  EXPECT_STREQ(find_kernels("ref")->name, "ref");
  EXPECT_EQ(find_kernels("mmx"), nullptr);
}

// cpu_kernels() caches its first result; only a failure is retried.
TEST(Level, TheEnvironmentForcesALevel) {
  setenv("WEFT_CPU_LEVEL", "mmx", 1);
  try {
    cpu_kernels();
    FAIL() << "mmx was accepted";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(available_levels().front()), std::string::npos);
  }
  setenv("WEFT_CPU_LEVEL", available_levels().front(), 1);
  EXPECT_STREQ(cpu_kernels().name, available_levels().front());
  unsetenv("WEFT_CPU_LEVEL");
}

}  // namespace
}  // namespace weft
